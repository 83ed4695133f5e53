; Interaction with the event in front of the player: signs, rivals, leaders, nurses, items, locks, gates.

FindEvent:                 ; finds an event at y = b, x = c whose flag is not set: hl, carry set if found
    ld hl, wEvents
    ld a, [hl+]
    ld h, [hl]
    ld l, a
.next:
    ld a, [hl]
    cp $FF
    jr z, .none
    push hl
    push bc
    call IsGone
    pop bc
    jr nz, .other
    inc hl
    ld a, [hl+]
    cp b
    jr nz, .other
    ld a, [hl]
    cp c
    jr nz, .other
    pop hl
    scf
    ret
.other:
    pop hl
    ld de, EVENT
    add hl, de
    jr .next
.none:
    and a                  ; no carry
    ret

Speak:
    call Target
    call FindEvent
    ret nc
    ld a, l
    ld [wEvent], a
    ld a, h
    ld [wEvent + 1], a
    ld a, [hl]
    add a
    ld hl, Kinds
    call Indexed
    jp hl

Kinds:
    dw Nothing, Nothing, Sign, Rival, Leader, Nurse, Item, Lock, Gate, Trophy

Nothing:
    ret

EventByte:                 ; a = byte a of the current event
    ld hl, wEvent
    add [hl]
    inc hl
    ld h, [hl]
    ld l, a
    jr nc, .same
    inc h
.same:
    ld a, [hl]
    ret

FirstText:                 ; hl = the event's text
    ld a, 8
    call EventByte
    inc hl
    ld h, [hl]
    ld l, a
    ret

SecondText:
    call FirstText
NextText:                  ; hl = the text after the one at hl
    ld a, [hl+]
    and a
    jr nz, NextText
    ret

SetEventFlag:
    ld a, 3
    call EventByte
    ld hl, EVENTS
    jp SetBit

Sign:
    call FirstText
Say:
    xor a
    jp OpenText

Rival:
    call FirstText
    ld a, 1                ; a match follows
    jp OpenText

Leader:                    ; three texts: not yet, challenge, thanks
    ld a, 5
    call EventByte
    ld hl, BADGES
    call BitOf
    and [hl]
    jr nz, .beaten
    ld a, 7
    call EventByte
    ld b, a
    ld a, [PARTY + LEVEL]
    cp b
    jp c, Sign
    call SecondText
    ld a, 1
    jp OpenText
.beaten:
    call SecondText
    call NextText
    jp Say

Nurse:
    ld a, [PARTY + MAX_HP + 1]
    ld [PARTY + HP + 1], a
    jp Sign

Item:
    call SetEventFlag
    ld a, [BAG_COUNT]
    inc a
    ld [BAG_COUNT], a
    dec a
    add a
    ld c, a
    ld b, 0
    ld hl, BAG
    add hl, bc
    push hl
    ld a, 5
    call EventByte
    pop hl
    ld [hl+], a
    ld a, 1
    ld [hl+], a
    ld [hl], $FF
    call Reload
    jp Sign

Lock:                      ; two texts: closed, opened
    ld a, 5
    call EventByte
    ld b, a
    ld hl, BAG
.look:
    ld a, [hl+]
    cp $FF
    jp z, Sign
    inc hl
    cp b
    jr nz, .look
Open:
    call SetEventFlag
    call Reload
    call SecondText
    jp Say

Gate:                      ; two texts: badges missing, opened
    ld a, [BADGES]
    cp ALL_BADGES
    jr z, Open
    jp Sign

Trophy:
    jp DrawEnding

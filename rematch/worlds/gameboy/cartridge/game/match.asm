; Matches. Three moves of the elements fire, water, leaf, and RUN. Water beats fire, leaf beats water, fire beats
; leaf. With level L a move takes 2 (L + 2) where it beats the enemy, (L + 2) / 4 where it is of the same element,
; (L + 2) / 2 otherwise. An enemy of level E has 3 E + 3 HP and hits back for E / 2 + 2. Matches are deterministic.

CREATURES equ 3            ; in a leader's team

StartMatch:                ; after a challenge: the event holds the enemy
    xor a
    ld [wTeam], a
    call ChooseCreature
    ld a, 6
    call EventByte
    ld [ENEMY_LEVEL], a
    ld a, 2
    ; fall through

BeginMatch:                ; a = 1 wild creature, 2 rival or leader; wSpecies and ENEMY_LEVEL are set
    ld [IN_BATTLE], a
    xor a
    ld [wCursor], a
    ld [wBgp], a
    call FullHealth
    call DrawMatch
    ld a, [IN_BATTLE]
    ld hl, WildText
    dec a
    jr z, .say
    ld hl, SendText
.say:
    ld a, 2
    jp OpenText

ChooseCreature:            ; the rival's only creature, or creature wTeam of the leader
    call IsLeader
    ld a, 5
    jr z, .leader
    call EventByte
    ld [wSpecies], a
    ret
.leader:
    call EventByte
    ld b, a
    add a
    add b
    ld b, a
    ld a, [wTeam]
    add b
    ld c, a
    ld b, 0
    ld hl, LeaderTeams
    add hl, bc
    ld a, [hl]
    ld [wSpecies], a
    ret

IsLeader:                  ; z if the current event is a leader
    xor a
    call EventByte
    cp 4
    ret

FullHealth:                ; the enemy's
    call EnemyMost
    ld [ENEMY_HP + 1], a
    ret

EnemyMost:                 ; a = 3 E + 3
    ld a, [ENEMY_LEVEL]
    inc a
    ld b, a
    add a
    add b
    ret

NextCreature:
    ld hl, wTeam
    inc [hl]
    call ChooseCreature
    call FullHealth
    ; fall through

OpenMenu:
    ld a, MODE_MENU
    ld [wMode], a
    ld a, 2
    ld [TEXT_BOX], a
    call DrawMatch
    call DrawBox
    ld hl, MenuText
    ld de, LINE_1
    call Print
    call DrawCursor
    jp ShowStage

DrawCursor:                ; at one of four places
    ld a, TILE_SPACE
    ld [LINE_1 + 1], a
    ld [LINE_1 + 10], a
    ld [LINE_2 + 1], a
    ld [LINE_2 + 10], a
    ld hl, LINE_1 + 1
    ld a, [wCursor]
    rrca
    jr nc, .left
    ld de, 9
    add hl, de
.left:
    rrca
    jr nc, .top
    ld de, 40
    add hl, de
.top:
    ld [hl], TILE_CURSOR
    ret

MenuMode:
    ld a, [wPressed]
    bit 4, a
    jr nz, Choose
    bit 5, a
    jr nz, Flee
    ld hl, wCursor
    bit 0, a
    jr nz, .right
    bit 1, a
    jr nz, .left
    bit 2, a
    jr nz, .up
    bit 3, a
    ret z
    set 1, [hl]
    jr .show
.up:
    res 1, [hl]
    jr .show
.left:
    res 0, [hl]
    jr .show
.right:
    set 0, [hl]
.show:
    call DrawCursor
    ld a, %100
    ld [wTransfer], a
    jp ShowRest

Flee:
    ld a, [IN_BATTLE]
    dec a
    jr nz, .no
    ld hl, FledText
    ld a, 4
    jp OpenText
.no:
    ld hl, NoFleeText
    jr HitBack

Choose:
    ld a, [wCursor]
    cp 3
    jr z, Flee
    ld [wMove], a
    ld c, a
    ld a, [wSpecies]
    cp 3
    jr c, .element
    sub 3
.element:
    ld b, a                ; the enemy's
    ld a, [PARTY + LEVEL]
    add 2
    ld d, a
    ld a, b
    cp c
    jr z, .weak
    inc a
    cp 3
    jr nz, .beaten_by
    xor a
.beaten_by:
    cp c
    jr z, .strong
    srl d
    ld hl, PlainText
    jr .hit
.weak:
    srl d
    srl d
    ld hl, WeakText
    jr .hit
.strong:
    sla d
    ld hl, StrongText
.hit:
    ld a, [ENEMY_HP + 1]
    sub d
    jr c, Fallen
    jr z, Fallen
    ld [ENEMY_HP + 1], a
    ; fall through

HitBack:                   ; hl = text if the player's creature survives
    ld a, [ENEMY_LEVEL]
    srl a
    add 2
    ld b, a
    ld a, [PARTY + HP + 1]
    sub b
    jr c, Lost
    jr z, Lost
    ld [PARTY + HP + 1], a
    push hl
    call DrawMatch
    pop hl
    ld a, 2
    jp OpenText

Lost:
    xor a
    ld [PARTY + HP + 1], a
    ld a, $FF
    ld [IN_BATTLE], a
    call DrawMatch
    ld hl, LostText
    ld a, 5
    jp OpenText

Fallen:
    xor a
    ld [ENEMY_HP + 1], a
    call DrawMatch
    ld a, [IN_BATTLE]
    dec a
    jr z, .wild
    call IsLeader
    jr z, .leader
    call SetEventFlag
    ld b, $01              ; hundreds, in decimal
    call Earn
    ld a, 7
    call EventByte
    jr .gain
.wild:                     ; weaker creatures give no experience
    ld a, [PARTY + LEVEL]
    ld b, a
    ld a, [ENEMY_LEVEL]
    cp b
    ld a, WILD_XP
    jr nc, .gain
    xor a
.gain:
    ld [wNumber], a
    ld hl, PARTY + EXPERIENCE + 2
    add [hl]
    ld [hl], a
    sub XP_PER_LEVEL
    jr c, .same
    ld [hl], a
    ld hl, PARTY + LEVEL
    inc [hl]
    ld hl, PARTY + MAX_HP + 1
    ld a, [hl]
    add HP_STEP
    ld [hl], a
    ld hl, PARTY + HP + 1
    ld a, [hl]
    add HP_STEP
    ld [hl], a
    ld hl, GrownText
    jr .say
.same:
    ld hl, WonText
    jr .say
.leader:
    ld a, [wTeam]
    cp CREATURES - 1
    jr z, .badge
    ld hl, AnotherText
    ld a, 3
    jp OpenText
.badge:
    ld a, 5
    call EventByte
    push af
    ld hl, BADGES
    call SetBit
    pop af
    inc a                  ; event flag 1 + badge is set too
    ld hl, EVENTS
    call SetBit
    ld b, $05
    call Earn
    ld hl, BadgeText
.say:
    ld a, 4
    jp OpenText

Earn:                      ; b hundreds in decimal
    ld hl, MONEY + 1
    ld a, [hl]
    add b
    daa
    ld [hl-], a
    ret nc
    ld a, [hl]
    add 1
    daa
    ld [hl], a
    ret

LeaveMatch:
    xor a
    ld [IN_BATTLE], a
    jp Reload

Blackout:                  ; restores HP, takes all money, returns to the last town
    ld a, [PARTY + MAX_HP + 1]
    ld [PARTY + HP + 1], a
    xor a
    ld [IN_BATTLE], a
    ld [MONEY], a
    ld [MONEY + 1], a
    ld [MONEY + 2], a
    ld a, [MAP]
    ld [LAST_MAP], a
    ld a, [BLACKOUT_MAP]
    ld [MAP], a
    add a
    ld hl, Maps
    call Indexed
    ld de, 5
    add hl, de
    ld a, [hl+]
    ld [Y], a
    ld a, [hl]
    ld [X], a
    jp EnterMap

; --- drawing a match ---
DrawMatch:                 ; everything except the text box
    call ClearScreen
    ld a, [wSpecies]
    push af
    ld de, SCREEN + 1 * 20 + 14
    call DrawPicture
    ld a, [wSpecies]
    add a
    ld hl, SpeciesNames
    call Indexed
    ld de, SCREEN + 1 * 20 + 1
    call Print
    pop af
    cp 3
    jr c, .element
    sub 3
.element:
    add a
    ld hl, ElementNames
    call Indexed
    ld de, SCREEN + 2 * 20 + 6
    call Print
    ld hl, LevelText
    ld de, SCREEN + 2 * 20 + 1
    call Print
    ld a, [ENEMY_LEVEL]
    call PrintTwo
    call EnemyMost
    ld c, a
    ld a, [ENEMY_HP + 1]
    ld b, a
    ld de, SCREEN + 3 * 20 + 1
    call DrawBar
    ld a, FRIEND_PICTURE
    ld de, SCREEN + 7 * 20 + 2
    call DrawPicture
    ld hl, FriendName
    ld de, SCREEN + 7 * 20 + 9
    call Print
    ld hl, LevelText
    ld de, SCREEN + 8 * 20 + 9
    call Print
    ld a, [PARTY + LEVEL]
    call PrintTwo
    ld a, [PARTY + MAX_HP + 1]
    ld c, a
    ld a, [PARTY + HP + 1]
    ld b, a
    ld de, SCREEN + 9 * 20 + 9
    call DrawBar
    ld a, [PARTY + HP + 1]
    ld de, SCREEN + 10 * 20 + 11
    call PrintThree
    ld a, TILE_SLASH
    ld [de], a
    inc de
    ld a, [PARTY + MAX_HP + 1]
    jp PrintThree

DrawBar:                   ; "HP" and eight tiles at de, filled b of c
    push bc
    ld hl, HealthText
    call Print
    pop bc
    push de
    ld e, b
    ld d, 0
    ld h, d
    ld l, e
    rept 6
    add hl, hl             ; 64 b
    endr
    ld e, c
    ld b, -1
.count:                    ; b = 64 b / c
    inc b
    ld a, l
    sub e
    ld l, a
    ld a, h
    sbc 0
    ld h, a
    jr nc, .count
    pop de
    ld c, 8
.tile:
    ld a, b
    cp 8
    jr c, .part
    ld a, 8
.part:
    push af
    add TILE_BAR
    ld [de], a
    inc de
    pop af
    ld l, a
    ld a, b
    sub l
    ld b, a
    dec c
    jr nz, .tile
    ret

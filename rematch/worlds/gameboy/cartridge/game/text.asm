; Texts: a box of two lines that waits for A or B at the end of each page.
; Codes in a text: 0 end, 1 second line, 2 next page, 3 the enemy's name, 4 the move's name, 5 wNumber.

BOX        equ SCREEN + 240    ; rows 12 to 17
LINE_1     equ BOX + 41
LINE_2     equ BOX + 81

OpenText:                  ; hl = text, a = action after it
    ld [wAfter], a
    ld a, MODE_TEXT
    ld [wMode], a
    ld a, 1
    ld [TEXT_BOX], a
    ; fall through
DrawPage:                  ; hl = page
    push hl
    call DrawBox
    pop hl
    ld de, LINE_1
    call Print
    ld a, l
    ld [wTextPtr], a
    ld a, h
    ld [wTextPtr + 1], a
    ; fall through
ShowBox:                   ; copies the box, and in a match the screen above it
    ld a, [IN_BATTLE]
    and a
    jp nz, ShowStage
    ld a, $9C
    ld [wTransferTo], a
    ld a, %1000
    ld [wTransfer], a
    call ShowRest
    ld a, BOX_Y
    ld [wWy], a
    ret

TextMode:
    ld a, [wPressed]
    and PAD_A | PAD_B
    ret z
    ld hl, wTextPtr
    ld a, [hl+]
    ld h, [hl]
    ld l, a
    ld a, [hl+]
    cp 2
    jr z, DrawPage
    xor a
    ld [TEXT_BOX], a
    ld a, [wAfter]
    add a
    ld hl, Afters
    call Indexed
    jp hl

Afters:
    dw CloseText, StartMatch, OpenMenu, NextCreature, LeaveMatch, Blackout

CloseText:                 ; back to the map, which the box never overwrote
    ld a, HIDDEN
    ld [wWy], a
    ld a, MODE_WORLD
    ld [wMode], a
    jp BuildScreen

DrawBox:                   ; an empty frame in the last third of the screen map
    ld hl, BOX
    ld a, TILE_TL
    ld b, TILE_TOP
    ld c, TILE_TR
    call .row
    ld e, 4
.side:
    ld a, TILE_SIDE
    ld b, TILE_SPACE
    ld c, TILE_SIDE
    call .row
    dec e
    jr nz, .side
    ld a, TILE_BL
    ld b, TILE_TOP
    ld c, TILE_BR
.row:
    ld [hl+], a
    ld d, 18
    ld a, b
.middle:
    ld [hl+], a
    dec d
    jr nz, .middle
    ld a, c
    ld [hl+], a
    ret

Print:                     ; prints text hl at de up to the end of its page; hl stays at the code that ended it
    ld a, [hl]
    cp 6
    jr c, .code
    ld [de], a
    inc de
    inc hl
    jr Print
.code:
    cp 1
    jr c, .out
    jr z, .line
    cp 3
    jr c, .out
    push hl
    jr z, .enemy
    cp 5
    jr z, .number
    ld a, [wMove]
    ld hl, MoveNames
    jr .name
.enemy:
    ld a, [wSpecies]
    ld hl, SpeciesNames
.name:
    add a
    call Indexed
    call Print
    jr .on
.number:
    ld a, [wNumber]
    call PrintTwo
.on:
    pop hl
    inc hl
    jr Print
.line:
    ld de, LINE_2
    inc hl
    jr Print
.out:
    ret

PrintThree:                ; a as three digits at de
    ld b, 100
    call Digit
PrintTwo:                  ; a as two digits at de
    ld b, 10
    call Digit
    add TILE_0
    ld [de], a
    inc de
    ret

Digit:                     ; one digit of a, weight b; the remainder stays in a
    ld c, TILE_0 - 1
.count:
    inc c
    sub b
    jr nc, .count
    add b
    ld b, a
    ld a, c
    ld [de], a
    inc de
    ld a, b
    ret

ClearScreen:
    ld hl, SCREEN
    ld bc, 360
.fill:
    ld a, TILE_SPACE
    ld [hl+], a
    dec bc
    ld a, b
    or c
    jr nz, .fill
    ret

DrawPicture:               ; creature a, four by four tiles at de
    swap a                 ; sixteen tiles each
    ld c, a
    ld b, 0
    ld hl, Pictures
    add hl, bc
    ld b, 4
    ld c, 4
    ; fall through
DrawTiles:                 ; b rows of c tiles from hl at de
    push bc
    push de
.tile:
    ld a, [hl+]
    ld [de], a
    inc de
    dec c
    jr nz, .tile
    pop de
    ld a, e
    add 20
    ld e, a
    jr nc, .same
    inc d
.same:
    pop bc
    dec b
    jr nz, DrawTiles
    ret

; --- the status page ---
OpenStatus:
    ld a, MODE_TEXT
    ld [wMode], a
    xor a
    ld [wAfter], a
    inc a
    ld [TEXT_BOX], a
    ld hl, EmptyText
    ld a, l
    ld [wTextPtr], a
    ld a, h
    ld [wTextPtr + 1], a
    call DrawBox
    ld hl, StatusFriend
    ld de, LINE_1
    call Print
    ld a, [PARTY + LEVEL]
    ld de, LINE_1 + 2
    call PrintTwo
    ld a, [PARTY + EXPERIENCE + 2]
    add TILE_0
    ld [LINE_1 + 7], a
    ld a, [PARTY + HP + 1]
    ld de, LINE_1 + 11
    call PrintThree
    ld a, [PARTY + MAX_HP + 1]
    inc de
    call PrintThree
    ld hl, StatusBadges
    ld de, LINE_2
    call Print
    call CountBadges
    ld [LINE_2 + 7], a
    ld de, LINE_2 + 11
    call DrawMoney
    jp ShowBox

CountBadges:               ; the number of badges as a digit's tile in a
    ld a, [BADGES]
    ld b, TILE_0
.next:
    srl a
    jr nc, .none
    inc b
.none:
    and a
    jr nz, .next
    ld a, b
    ret

DrawBadges:                ; the ending's numbers
    call CountBadges
    ld [SCREEN + 14 * 20 + 9], a
    ld de, SCREEN + 14 * 20 + 13
    ; fall through
DrawMoney:                 ; six digits at de
    ld hl, MONEY
    ld b, 3
.money:
    ld a, [hl]
    swap a
    and $0F
    add TILE_0
    ld [de], a
    inc de
    ld a, [hl+]
    and $0F
    add TILE_0
    ld [de], a
    inc de
    dec b
    jr nz, .money
    ret

; Core of the game: cartridge header, start, vertical blank, main loop, joypad, drawing routines.
; Hardware registers have the names of the programming manual.

rP1   equ $FF00        ; joypad
rIF   equ $FF0F        ; interrupt request
rNR52 equ $FF26        ; sound on/off
rLCDC equ $FF40
rSCY  equ $FF42
rSCX  equ $FF43
rLY   equ $FF44
rDMA  equ $FF46
rBGP  equ $FF47
rOBP0 equ $FF48
rWY   equ $FF4A
rWX   equ $FF4B
rIE   equ $FFFF
hDma  equ $FF80        ; the sprite transfer routine runs in high RAM

LCDC_WORLD equ %11110011   ; on, window map $9C00, window on, tiles at $8000, sprites on
LCDC_STAGE equ %11100001   ; the same with tiles at $8800-$97FF and no sprites: title, matches, ending
PALETTE    equ %11100100
HIDDEN     equ 144         ; WY of an invisible window
BOX_Y      equ 96          ; WY of the text box: the last third of the screen

; --- private work RAM; the public game state has the addresses of ram_addresses.py ---
wOam       equ $C000       ; 40 sprites
wMode      equ $C510
wHeld      equ $C511
wPressed   equ $C512       ; keys pressed since the last frame
wBlanked   equ $C513       ; set by the vertical blank
wScx       equ $C514
wScy       equ $C515
wTransfer  equ $C516       ; bits: thirds of the screen map still to be copied; bit 3: the box for a low window
wTransferTo equ $C517      ; $98 background, $9C window
wWy        equ $C518
wLcdc      equ $C519
wBgp       equ $C51A
wStrip     equ $C51B       ; 0 none, 1 a row of the background, 2 a column
wStripSrc  equ $C51C
wStripDst  equ $C51E
wOriginX   equ $C520       ; background tile in the top left corner of the screen
wOriginY   equ $C521
wAfter     equ $C522       ; action after a text
wTextPtr   equ $C523
wTeam      equ $C526       ; index of the leader's current creature
wEvent     equ $C527       ; address of the current event
wRng       equ $C52A
wStride    equ $C52B       ; width of the map buffer
wMapPtr    equ $C52C       ; the player's block in the map buffer
wEvents    equ $C52E       ; the map's events
wWild      equ $C530       ; two species, level
wHomeY     equ $C533
wHomeX     equ $C534
wMove      equ $C535
wNumber    equ $C536       ; shown by texts
wWalk      equ $C537       ; counts frames of a step
wBorder    equ $C538
wClock     equ $C539       ; non-zero: play time runs
wFoot      equ $C53A       ; alternates with each step: left or right foot first
wTown      equ $C53B
wScrollAt  equ $C53C       ; low byte of wScx or wScy
wScrollBy  equ $C53D
wLineKind  equ $C53E       ; 1 rows, 2 columns
wSprites   equ $C53F       ; set: wOam changed
wBuffer    equ $C540       ; the map with a border of MARGIN blocks, up to wCursor
wCursor    equ $CC26       ; public, like the enemy's species (ram_addresses.py)
wSpecies   equ $CFE5

MODE_TITLE equ 0
MODE_WORLD equ 1
MODE_TEXT  equ 2
MODE_MENU  equ 3
MODE_END   equ 4

    org $40
    jp VBlank
    org $100
    nop
    jp Start
    org $134
    db TITLE_0, TITLE_1, TITLE_2, TITLE_3, TITLE_4, TITLE_5, TITLE_6, TITLE_7
    db TITLE_8, TITLE_9, TITLE_10, 0, 0, 0, 0, 0   ; the rest of the header is zero: no mapper, 32 KiB

    org $150
Start:
    di
    ld sp, $DFFF
    xor a
    ldh [rNR52], a
.wait:                     ; the screen may be switched off only during the vertical blank
    ldh a, [rLY]
    cp 145
    jr nz, .wait
    xor a
    ldh [rLCDC], a
    ld hl, $8000           ; video RAM and work RAM start at zero
    ld bc, $2000
    call Clear
    ld hl, $C000
    ld bc, $1F00
    call Clear
    ld hl, TilesLow
    ld de, $8000
    ld bc, TilesLowEnd - TilesLow
    call Copy
    ld hl, TilesMiddle
    ld de, $8800
    ld bc, TilesMiddleEnd - TilesMiddle
    call Copy
    ld hl, TilesHigh
    ld de, $9000
    ld bc, TilesHighEnd - TilesHigh
    call Copy
    ld hl, DmaCode
    ld de, hDma
    ld bc, DmaCodeEnd - DmaCode
    call Copy
    ld a, 7
    ld [wSprites], a
    ldh [rWX], a
    ld a, PALETTE
    ld [wBgp], a
    ldh [rBGP], a
    ld a, %11100000        ; sprites: see-through, white, dark, black
    ldh [rOBP0], a
    ld a, HIDDEN
    ld [wWy], a
    ldh [rWY], a
    ld a, LCDC_STAGE
    ld [wLcdc], a
    ldh [rLCDC], a
    xor a
    ldh [rIF], a
    inc a                  ; vertical blank only
    ldh [rIE], a
    ei
    call DrawTitle

Loop:
    call WaitBlank
    call ReadPad
    ld a, [wMode]
    add a
    ld hl, Modes
    call Indexed
    call JumpHl
    jr Loop

Modes:
    dw TitleMode, WorldMode, TextMode, MenuMode, EndMode

Indexed:                   ; hl = word at hl + a
    add l
    ld l, a
    jr nc, .same
    inc h
.same:
    ld a, [hl+]
    ld h, [hl]
    ld l, a
    ret

JumpHl:
    jp hl

Clear:                     ; bc bytes at hl
    ld [hl], 0
    inc hl
    dec bc
    ld a, b
    or c
    jr nz, Clear
    ret

Copy:                      ; bc bytes from hl to de
    ld a, [hl+]
    ld [de], a
    inc de
    dec bc
    ld a, b
    or c
    jr nz, Copy
    ret

DmaCode:
    ld a, high(wOam)
    ldh [rDMA], a
    ld a, 40
.wait:
    dec a
    jr nz, .wait
    ret
DmaCodeEnd:

WaitBlank:                 ; sleeps until the next vertical blank is over
    xor a
    ld [wBlanked], a
.sleep:
    halt
    ld a, [wBlanked]
    and a
    jr z, .sleep
    ret

WaitFrames:                ; a frames
    push af
    call WaitBlank
    pop af
    dec a
    jr nz, WaitFrames
    ret

; --- the joypad: a 1 bit is a pressed key: right left up down a b select start ---
ReadPad:
    ld a, %00100000        ; the directions
    ldh [rP1], a
    ldh a, [rP1]
    ldh a, [rP1]
    cpl
    and $0F
    ld b, a
    ld a, %00010000        ; the buttons
    ldh [rP1], a
    ldh a, [rP1]
    ldh a, [rP1]
    cpl
    and $0F
    swap a
    or b
    ld b, a
    ld a, %00110000
    ldh [rP1], a
    ld a, [wHeld]
    cpl
    and b
    ld [wPressed], a
    ld a, b
    ld [wHeld], a
    ret

PAD_RIGHT  equ $01
PAD_LEFT   equ $02
PAD_UP     equ $04
PAD_DOWN   equ $08
PAD_A      equ $10
PAD_B      equ $20
PAD_SELECT equ $40
PAD_START  equ $80

; --- vertical blank: registers, sprites, one piece of the picture, the clock ---
VBlank:
    push af
    push bc
    push de
    push hl
    ld a, [wScx]
    ldh [rSCX], a
    ld a, [wScy]
    ldh [rSCY], a
    ld a, [wLcdc]
    ldh [rLCDC], a
    ld a, [wBgp]
    ldh [rBGP], a
    ld a, [wWy]
    ldh [rWY], a
    ld a, [wSprites]       ; only when they changed: the transfer takes a seventh of the blank
    and a
    jr z, .same_sprites
    xor a
    ld [wSprites], a
    call hDma
.same_sprites:
    ld a, [wStrip]
    and a
    jr z, .thirds
    call CopyStrip
    jr .clock
.thirds:
    ld a, [wTransfer]
    and a
    call nz, CopyThird
.clock:
    ld a, [wClock]
    and a
    call nz, Tick
    ld a, 1
    ld [wBlanked], a
    pop hl
    pop de
    pop bc
    pop af
    reti

CopyThird:                 ; six rows of the screen map: the lowest third that is requested
    rra
    jr c, .first
    rra
    jr c, .second
    ld hl, SCREEN + 240
    ld de, 384
    ld c, %11111011
    rra
    jr c, .copy
    ld de, 0               ; a low window shows its map from the first row on
    ld c, %11110111
    jr .copy
.first:
    ld hl, SCREEN
    ld de, 0
    ld c, %11111110
    jr .copy
.second:
    ld hl, SCREEN + 120
    ld de, 192
    ld c, %11111101
.copy:
    ld a, [wTransfer]
    and c
    ld [wTransfer], a
    ld a, [wTransferTo]
    add d
    ld d, a
    ld b, 6
.row:
    rept 20
    ld a, [hl+]
    ld [de], a
    inc e
    endr
    ld a, e
    add 12
    ld e, a
    jr nc, .same
    inc d
.same:
    dec b
    jr nz, .row
    ret

CopyStrip:                 ; one row or column of the screen map into the background, which wraps around
    ld b, a
    xor a
    ld [wStrip], a
    ld hl, wStripDst
    ld a, [hl+]
    ld d, [hl]
    ld e, a
    ld hl, wStripSrc
    ld a, [hl+]
    ld h, [hl]
    ld l, a
    dec b
    jr nz, .column
    ld b, 20
.across:
    ld a, [hl+]
    ld [de], a
    ld a, e
    inc a
    xor e
    and $1F
    xor e                  ; the low five bits step, the others stay
    ld e, a
    dec b
    jr nz, .across
    ret
.column:
    ld b, 18
.down:
    ld a, [hl]
    ld [de], a
    ld a, l
    add 20
    ld l, a
    jr nc, .same
    inc h
.same:
    ld a, e
    add 32
    ld e, a
    jr nc, .below
    inc d
    res 2, d               ; $9C00 is $9800 again
.below:
    dec b
    jr nz, .down
    ret

Tick:                      ; play time: frames, seconds, minutes, hours
    ld hl, FRAMES
    inc [hl]
    ld a, [hl]
    cp 60
    ret c
    xor a
    ld [hl-], a
    inc [hl]               ; SECONDS
    ld a, [hl]
    cp 60
    ret c
    xor a
    ld [hl-], a
    inc [hl]               ; MINUTES
    ld a, [hl]
    cp 60
    ret c
    ld [hl], 0
    ld hl, HOURS
    inc [hl]
    ret

ShowAll:                   ; the whole screen map to wTransferTo, in three blanks
    ld a, 7
    ld [wTransfer], a
ShowRest:
    call WaitBlank
    ld a, [wTransfer]
    and a
    jr nz, ShowRest
    ret

ShowStage:                 ; the screen map as a full window without sprites
    ld a, $9C
    ld [wTransferTo], a
    call ShowAll
    xor a
    ld [wWy], a
    ld a, LCDC_STAGE
    ld [wLcdc], a
    ld a, PALETTE
    ld [wBgp], a
    ret

; --- title and ending ---
DrawTitle:
    call ClearScreen
    ld hl, TitleTiles
    ld de, SCREEN + 3 * 20 + 3
    ld b, 2
    ld c, 14
    call DrawTiles
    ld hl, TitleWords
    ld de, SCREEN + 6 * 20 + 3
    call Print
    ld a, FRIEND_PICTURE
    ld de, SCREEN + 8 * 20 + 2
    call DrawPicture
    xor a
    ld de, SCREEN + 8 * 20 + 8
    call DrawPicture
    ld a, 1
    ld de, SCREEN + 8 * 20 + 14
    call DrawPicture
    ld hl, TitleStart
    ld de, SCREEN + 14 * 20 + 4
    call Print
    jp ShowStage

TitleMode:
    ld a, [wPressed]
    and PAD_A | PAD_START
    ret z
    ; fall through

NewGame:
    ld a, RNG_SEED
    ld [wRng], a
    ld a, 1
    ld [wClock], a
    ld [PARTY_COUNT], a
    ld a, FRIEND_PICTURE
    ld [PARTY_SPECIES], a
    ld [PARTY], a
    ld a, $FF
    ld [PARTY_SPECIES + 1], a
    ld [BAG], a
    ld a, START_LEVEL
    ld [PARTY + LEVEL], a
    ld a, HP_BASE + HP_STEP * START_LEVEL
    ld [PARTY + HP + 1], a
    ld [PARTY + MAX_HP + 1], a
    ld a, START_MAP
    ld [MAP], a
    ld [LAST_MAP], a
    ld a, START_Y
    ld [Y], a
    ld a, START_X
    ld [X], a
    call EnterMap
    ld hl, IntroText
    xor a
    jp OpenText

EndMode:
    ret

DrawEnding:
    ld a, 1
    ld [HALL_OF_FAME], a
    ld [JOYPAD_IGNORE], a
    ld a, MODE_END
    ld [wMode], a
    call ClearScreen
    ld hl, TitleTiles
    ld de, SCREEN + 1 * 20 + 3
    ld b, 2
    ld c, 14
    call DrawTiles
    ld hl, EndingWords
    ld de, SCREEN + 4 * 20 + 4
    call Print
    ld a, FRIEND_PICTURE
    ld de, SCREEN + 7 * 20 + 8
    call DrawPicture
    ld hl, EndingLine
    ld de, SCREEN + 12 * 20 + 2
    call Print
    ld hl, StatusBadges
    ld de, SCREEN + 14 * 20 + 2
    call Print
    call DrawBadges
    jp ShowStage

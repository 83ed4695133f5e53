; The map: loading, drawing, walking, doors.

MARGIN equ 5               ; blocks around a map, so that the screen stays inside the buffer
; A map's header: height, width, tileset, border, town (FF: none), home y, x, two wild species, their level,
; then the addresses of its blocks and its events.
; An event: kind, y, x, flag (0: never removed), block, three arguments, text; kind FF ends the list.
EVENT      equ 10
KIND_WARP  equ 1

WorldMode:
    ld a, [wPressed]
    bit 7, a
    jp nz, OpenStatus
    bit 4, a
    jp nz, Speak
    ld a, [wHeld]
    and PAD_RIGHT | PAD_LEFT | PAD_UP | PAD_DOWN
    ret z
    ld b, 0
    bit 3, a
    jr nz, .turn
    ld b, 4
    bit 2, a
    jr nz, .turn
    ld b, 8
    bit 1, a
    jr nz, .turn
    ld b, 12
.turn:
    ld a, b
    ld [FACING], a
    xor a
    ld [wWalk], a
    call DrawPlayer
    call Ahead
    ld a, [hl]
    call KindOf
    cp SOLID
    ret z
    ; fall through

Step:                      ; hl = the block ahead
    ld a, 1
    ld [JOYPAD_IGNORE], a
    ld a, l
    ld [wMapPtr], a
    ld a, h
    ld [wMapPtr + 1], a
    call Target
    ld a, b
    ld [Y], a
    ld a, c
    ld [X], a
    call Underfoot
    cp WARP
    jr z, .door
    call BuildScreen
    call Scroll
    xor a
    ld [JOYPAD_IGNORE], a
    call Underfoot
    cp GRASS
    ret nz
    call Random
    cp ENCOUNTER
    ret nc
    and 1
    ld hl, wWild
    add l
    ld l, a
    ld a, [hl]
    ld [wSpecies], a
    ld a, [wWild + 2]
    ld [ENEMY_LEVEL], a
    ld a, 1
    jp BeginMatch
.door:
    ld hl, Y
    ld a, [hl+]
    ld b, a
    ld c, [hl]
    call FindEvent
    ret nc                 ; the compiler gives every door an event
    ld a, [MAP]
    ld [LAST_MAP], a
    ld de, 5
    add hl, de
    ld a, [hl+]
    ld [MAP], a
    ld a, [hl+]
    ld [Y], a
    ld a, [hl]
    ld [X], a
    ; fall through

EnterMap:                  ; the screen is white until a short press has ended
    xor a
    ld [wBgp], a
    call LoadMap
    ld a, 8
    call WaitFrames
    ld a, [MAP]
    ld b, a
    ld a, [wTown]
    cp $FF
    jr z, .no_town
    ld c, a
    ld a, b
    ld [BLACKOUT_MAP], a
    ld a, c
    ld hl, TOWNS_VISITED
    call SetBit
.no_town:
    ld a, PALETTE
    ld [wBgp], a
    xor a
    ld [JOYPAD_IGNORE], a
    ret

Random:                    ; x' = 5 x + 113 modulo 256: every value comes once in 256 steps
    ld a, [wRng]
    ld b, a
    add a
    add a
    add b
    add 113
    ld [wRng], a
    ret

KindOf:                    ; a = kind of block a
    ld e, a
    ld d, high(BlockKinds)
    ld a, [de]
    ret

Underfoot:
    ld hl, wMapPtr
    ld a, [hl+]
    ld h, [hl]
    ld l, a
    ld a, [hl]
    jr KindOf

Ahead:                     ; hl = the block in the buffer that the player faces
    ld hl, wMapPtr
    ld a, [hl+]
    ld h, [hl]
    ld l, a
    ld a, [FACING]
    ld b, a
    ld a, [wStride]
    ld e, a
    ld d, 0
    ld a, b
    and a
    jr z, .add
    cp 8
    jr c, .up
    ld e, 1
    jr nz, .add
.up:
    ld a, l
    sub e
    ld l, a
    ret nc
    dec h
    ret
.add:
    add hl, de
    ret

Target:                    ; b, c = y, x ahead
    ld a, [Y]
    ld b, a
    ld a, [X]
    ld c, a
    ld a, [FACING]
    and a
    jr z, .down
    cp 8
    jr c, .up
    jr z, .left
    inc c
    ret
.down:
    inc b
    ret
.up:
    dec b
    ret
.left:
    dec c
    ret

; --- drawing ---
BuildScreen:               ; the screen map from the map buffer: ten by nine blocks, the player in the middle
    ld a, [wStride]
    ld e, a
    ld d, 0
    ld hl, wMapPtr
    ld a, [hl+]
    ld h, [hl]
    ld l, a
    ld b, 4
.back:                     ; four rows up
    ld a, l
    sub e
    ld l, a
    jr nc, .same
    dec h
.same:
    dec b
    jr nz, .back
    ld de, -4              ; four columns left
    add hl, de
    ld d, h
    ld e, l
    ld hl, SCREEN
    ld b, 9
.row:
    push bc
    push de
    ld c, 10
.block:
    push bc
    ld a, [de]
    inc de
    add a
    add a
    ld c, a
    ld b, high(Blocks)
    push de
    ld a, [bc]
    ld [hl+], a
    inc c
    ld a, [bc]
    ld [hl], a
    inc c
    ld de, 19
    add hl, de
    ld a, [bc]
    ld [hl+], a
    inc c
    ld a, [bc]
    ld [hl], a
    ld de, -19
    add hl, de
    pop de
    pop bc
    dec c
    jr nz, .block
    ld bc, 20
    add hl, bc
    pop de
    ld a, [wStride]
    add e
    ld e, a
    jr nc, .next
    inc d
.next:
    pop bc
    dec b
    jr nz, .row
    ret

DrawPlayer:                ; four sprites; facing right is facing left mirrored, and so is every second step
    ld a, 1
    ld [wSprites], a
    ld a, [FACING]
    ld c, a
    rrca
    rrca
    add a
    ld b, a                ; 0 down, 2 up, 4 left, 6 right
    ld a, [wWalk]
    bit 3, a               ; the middle of a step shows the walking picture
    jr z, .stand
    inc b
.stand:
    ld a, b
    ld hl, PlayerTiles
    add l
    ld l, a
    jr nc, .here
    inc h
.here:
    ld d, [hl]             ; the first tile
    ld e, 0
    ld a, c
    cp 12
    jr z, .mirror
    cp 8
    jr z, .write
    ld a, [wFoot]          ; down and up alternate their feet
    and 1
    jr z, .write
    bit 0, b
    jr z, .write
.mirror:
    ld e, $20
.write:
    ld hl, wOam
    ld b, 76
    call .pair
    ld b, 84
.pair:                     ; two sprites at y = b, tiles d and d + 1, swapped if mirrored
    ld c, 72
    bit 5, e
    jr z, .first
    ld c, 80
.first:
    call .one
    ld a, c
    xor 72 ^ 80
    ld c, a
.one:
    ld a, b
    ld [hl+], a
    ld a, c
    ld [hl+], a
    ld a, d
    ld [hl+], a
    inc d
    ld a, e
    ld [hl+], a
    ret

Scroll:                    ; sixteen frames; the new row or column is copied nearest first
    ld hl, wFoot
    inc [hl]
    ld a, [FACING]
    add a
    ld hl, ScrollTable
    add l
    ld l, a
    jr nc, .same
    inc h
.same:
    ld d, high(wOriginX)
    ld a, [hl+]            ; the background's corner moves two tiles
    ld e, a
    ld a, [de]
    add [hl]
    and 31
    ld [de], a
    inc hl
    ld a, [hl+]
    ld [wScrollAt], a
    ld a, [hl+]
    ld [wScrollBy], a
    ld a, [hl+]
    ld [wLineKind], a
    ld a, [hl+]
    push hl
    call SetStrip
    call ScrollFrame
    pop hl
    ld a, [hl]
    call SetStrip
    ld b, 15
.frame:
    call ScrollFrame
    dec b
    jr nz, .frame
    xor a
    ld [wWalk], a
    jp DrawPlayer

ScrollTable:               ; corner, its step, scroll register, its step, kind of line, nearest line, next line
    db low(wOriginY), 2, low(wScy), 1, 1, 16, 17, 0
    db low(wOriginY), -2, low(wScy), -1, 1, 1, 0, 0
    db low(wOriginX), -2, low(wScx), -1, 2, 1, 0, 0
    db low(wOriginX), 2, low(wScx), 1, 2, 18, 19, 0

ScrollFrame:
    push bc
    ld a, [wScrollAt]
    ld l, a
    ld h, high(wScx)
    ld a, [wScrollBy]
    add [hl]
    ld [hl], a
    ld hl, wWalk
    inc [hl]
    call DrawPlayer
    call WaitBlank
    pop bc
    ret

SetStrip:                  ; line a of the screen map goes to the background at the next blank
    ld b, a
    ld a, [wOriginX]
    ld e, a
    ld a, [wOriginY]
    ld d, a
    ld a, [wLineKind]
    dec a
    jr nz, .column
    ld a, d
    add b
    and 31
    ld d, a
    ld hl, SCREEN
    push de
    ld de, 20
    inc b
.rows:
    dec b
    jr z, .found
    add hl, de
    jr .rows
.found:
    pop de
    jr .set
.column:
    ld a, e
    add b
    and 31
    ld e, a
    ld a, b
    add low(SCREEN)
    ld l, a
    ld h, high(SCREEN)
.set:                      ; hl = source; d, e = the background's row and column
    ld a, l
    ld [wStripSrc], a
    ld a, h
    ld [wStripSrc + 1], a
    ld l, d
    ld h, 0
    ld d, $98
    rept 5
    add hl, hl
    endr
    add hl, de
    ld a, l
    ld [wStripDst], a
    ld a, h
    ld [wStripDst + 1], a
    ld a, [wLineKind]
    ld [wStrip], a
    ret

; --- loading ---
LoadMap:                   ; loads the map of MAP, Y and X: fills the buffer, adds the objects, draws it
    ld a, [MAP]
    add a
    ld hl, Maps
    call Indexed
    ld a, [hl+]
    ld [MAP_HEIGHT], a
    ld a, [hl+]
    ld [MAP_WIDTH], a
    add 2 * MARGIN
    ld [wStride], a
    ld a, [hl+]
    ld [TILESET], a
    ld a, [hl+]
    ld [wBorder], a
    ld a, [hl+]
    ld [wTown], a
    ld a, [hl+]
    ld [wHomeY], a
    ld a, [hl+]
    ld [wHomeX], a
    ld de, wWild
    ld b, 3
.wild:
    ld a, [hl+]
    ld [de], a
    inc de
    dec b
    jr nz, .wild
    ld a, [hl+]            ; the blocks
    ld c, a
    ld a, [hl+]
    ld b, a
    ld a, [hl+]
    ld [wEvents], a
    ld a, [hl]
    ld [wEvents + 1], a
    push bc
    ld hl, wBuffer         ; border everywhere
    ld a, [MAP_HEIGHT]
    add 2 * MARGIN
    ld c, a
.border:
    ld a, [wStride]
    ld b, a
    ld a, [wBorder]
.fill:
    ld [hl+], a
    dec b
    jr nz, .fill
    dec c
    jr nz, .border
    ld b, 0
    ld c, 0
    call BufferAt
    pop de
    ld a, [MAP_HEIGHT]
    ld c, a
.row:
    ld a, [MAP_WIDTH]
    ld b, a
.block:
    ld a, [de]
    inc de
    ld [hl+], a
    dec b
    jr nz, .block
    push bc
    ld bc, 2 * MARGIN
    add hl, bc
    pop bc
    dec c
    jr nz, .row
    ld hl, wEvents
    ld a, [hl+]
    ld h, [hl]
    ld l, a
.object:
    ld a, [hl]
    inc a
    jr z, .done
    push hl
    call IsGone
    jr nz, .gone
    inc hl
    ld a, [hl+]
    ld b, a
    ld a, [hl+]
    ld c, a
    inc hl
    ld a, [hl]
    push af
    call BufferAt
    pop af
    ld [hl], a
.gone:
    pop hl
    ld de, EVENT
    add hl, de
    jr .object
.done:
    ld a, [Y]
    ld b, a
    ld a, [X]
    ld c, a
    call BufferAt
    ld a, l
    ld [wMapPtr], a
    ld a, h
    ld [wMapPtr + 1], a
    xor a
    ld [wScx], a
    ld [wScy], a
    ld [wOriginX], a
    ld [wOriginY], a
    ld [wWalk], a
    ld a, HIDDEN
    ld [wWy], a
    ld a, LCDC_WORLD
    ld [wLcdc], a
    ld a, MODE_WORLD
    ld [wMode], a
    call DrawPlayer
    call BuildScreen
    ld a, $98
    ld [wTransferTo], a
    jp ShowAll

Reload:                    ; loads the same map again after an object changed
    xor a
    ld [wBgp], a
    call LoadMap
    ld a, PALETTE
    ld [wBgp], a
    ret

BufferAt:                  ; hl = the buffer's block at y = b, x = c
    ld a, [wStride]
    ld e, a
    ld d, 0
    ld hl, wBuffer + MARGIN
    ld a, b
    add MARGIN
    ld b, a
.row:
    add hl, de
    dec b
    jr nz, .row
    ld e, c
    add hl, de
    ret

; --- flags and events ---
BitOf:                     ; hl += a / 8, a = 1 << a % 8
    ld c, a
    and 7
    ld b, a
    ld a, c
    rrca
    rrca
    rrca
    and $1F
    add l
    ld l, a
    jr nc, .same
    inc h
.same:
    inc b
    ld a, $80
.turn:
    rlca
    dec b
    jr nz, .turn
    ret

SetBit:                    ; bit a of the bits at hl
    call BitOf
    or [hl]
    ld [hl], a
    ret

IsGone:                    ; nz if the event at hl has a flag that is set; hl is kept
    push hl
    inc hl
    inc hl
    inc hl
    ld a, [hl]
    and a
    jr z, .stays
    ld hl, EVENTS
    call BitOf
    and [hl]
.stays:
    pop hl
    ret


/* The members of a C struct as a table that Python reads (struct_layout.pxi). A world writes the members of its
 * structs `Rules` and `Game` as lists FIELD(type, name) and FIELD(type, name, length), and then
 *
 *     STRUCT_LAYOUT(rules, Rules, PURSUIT_RULES(RULE_ENTRY))
 *     STRUCT_LAYOUT(game, Game, PURSUIT_GAME(GAME_ENTRY))
 *
 * which define `rules_layout` and `game_layout`. */
#ifndef REMATCH_STRUCT_LAYOUT_H
#define REMATCH_STRUCT_LAYOUT_H

#include <stddef.h>

typedef struct { const char *type, *name; size_t offset, length; } StructMember;
typedef struct { const StructMember *members; size_t count, bytes; } StructLayout;

#define RULE_ENTRY(type, name) {#type, #name, offsetof(Rules, name), 1},
#define GAME_ENTRY(type, name, length) {#type, #name, offsetof(Game, name), length},

#define STRUCT_LAYOUT(prefix, struct_type, ...) \
    static const StructMember prefix##_members[] = {__VA_ARGS__}; \
    static const StructLayout prefix##_layout = { \
        prefix##_members, sizeof prefix##_members / sizeof *prefix##_members, sizeof(struct_type)};

#endif

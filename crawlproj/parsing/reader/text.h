/* Text out of HTML: buffers that grow, character references, white space. */
#ifndef CRAWLPROJ_TEXT_H
#define CRAWLPROJ_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokens.h"

/* Items of one size. After no_memory nothing is added any more; who fills buffers looks at it at the end. */
typedef struct {
    void *items;
    size_t count, room_bytes;
} buffer;

extern bool no_memory;

/* Room for count more items; NULL without memory. They are counted, and not set. */
void *add_items(buffer *buffer, size_t count, size_t size);
void free_buffer(buffer *buffer);

/* Not to be relied on where somebody may want two to be the same. */
uint64_t hash_bytes(const char *bytes, size_t length, uint64_t start);

/* The names of characters, from Python's html.entities; false without memory. */
bool add_character_name(const char *name, const char *utf8);

/* What is written: one text after another. */
typedef struct {
    buffer bytes;
    bool has_space; /* to stand before the next word */
} text;

static inline char *text_at(const text *text, size_t place) { return (char *)text->bytes.items + place; }
static inline size_t text_length(const text *text) { return text->bytes.count; }

void put_bytes(text *text, const char *bytes, size_t length);
/* Adds what is written in the page there, character references resolved, each white space a space and several of
 * them one, unless is_pre. start: where the line began, which has no space in front. */
void put_markup(text *text, slice markup, size_t start, bool is_pre);
/* The same for the value of an attribute, as it is. */
void put_value(text *text, slice value);

#endif

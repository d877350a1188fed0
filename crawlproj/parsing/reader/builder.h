/* What is known while a page is being read; for tree.c, stack.c, lines.c and head.c. */
#ifndef CRAWLPROJ_BUILDER_H
#define CRAWLPROJ_BUILDER_H

#include "page.h"

#define MOST_DEPTH 512

typedef struct {
    uint32_t hash;       /* of its name */
    uint32_t element;    /* its number, or that of the block around it */
    uint32_t text_start; /* where it began */
    uint32_t row;        /* around it; what follows, too */
    uint16_t state;
    bool is_linked, is_bold;
    uint16_t tag;        /* its own */
    bool is_block;
    bool is_byline;
    slice datetime, names[2]; /* of <time> */
} open_element;

typedef struct {
    page *page;
    scanner scanner;
    token token;
    open_element open[MOST_DEPTH];
    uint32_t depth;
    uint32_t open_counts[TAG_COUNT];
    uint32_t element; /* the innermost block */
    uint32_t row;     /* of a table; 0: none */
    uint16_t state;
    bool is_linked, is_bold;
    uint32_t link_start; /* where the text of the open link began */
    bool is_byline_link;
    /* The line at hand. */
    size_t line_start;
    uint32_t linked_bytes, bold_bytes;
    uint16_t links;
    uint8_t breaks; /* <br> since the last word */
    bool follows_break;
} builder;

/* stack.c */
void set_names(element *element, const token *tag);
/* For the tag at hand: the element that begins there. */
void add_element(builder *b);
void push(builder *b);
void pop(builder *b);
void pop_to(builder *b, uint32_t depth);
/* Pops all up to the innermost open one of that tag, unless something in stops is nearer. */
bool close_tag(builder *b, enum tag tag, uint32_t stops);

/* lines.c */
void put_text(builder *b, slice markup);
void put_break(builder *b);
void end_line(builder *b);

/* head.c: what tags say besides being there. */
void note_tag(builder *b);
void note_raw_text(builder *b, const token *tag, slice contents);
void note_end(builder *b, const open_element *ended);
void note_end_of_link(builder *b);
bool is_byline(const token *tag);

#endif

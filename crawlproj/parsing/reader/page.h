/* A page that was read: its elements and lines of text in their order, its links, and what it says of itself. */
#ifndef CRAWLPROJ_PAGE_H
#define CRAWLPROJ_PAGE_H

#include "text.h"

/* States of the text inside of an element. */
enum state {
    IN_FOREIGN = 1 << 0, /* SVG, MathML */
    IN_PRE = 1 << 1,
    IN_NOSCRIPT = 1 << 2,
    IN_TEMPLATE = 1 << 3, /* not part of the page */
    IS_SILENT = 1 << 4,   /* has no text for readers */
    IS_HIDDEN = 1 << 5,
    IS_ARIA_HIDDEN = 1 << 6,
};

enum { CLASS_NAMES, ID_NAMES, ITEMPROP_NAMES, ROLE_NAMES, DATA_NAMES, NAME_KINDS };

/* An element that begins and ends lines. The first of a page is its body. */
typedef struct element {
    slice names[NAME_KINDS];
    uint64_t hash; /* of tag and class */
    uint32_t parent;
    uint32_t first_line, end_line;
    uint16_t tag, depth;
    uint16_t state;
} element;

/* A paragraph, a heading, an item of a list, a cell ...: text between two places where blocks begin or end. */
typedef struct line {
    uint32_t start, length; /* in the text of the page */
    uint32_t owner;         /* the innermost element around it */
    uint32_t row;           /* of the table, if it is a cell; 0 if not */
    uint32_t linked_bytes, bold_bytes;
    uint16_t links;
    uint16_t state;
    bool follows_break; /* begins after an empty line made of <br> */
} line;

typedef struct {
    slice href;
    uint8_t tag;
    bool is_nofollow, is_next;
} page_link;

/* A place in the text, for what is known by its end tag. */
typedef struct {
    slice value; /* of an attribute; else the text counts */
    slice names[2];
    uint32_t start, length;
    uint8_t level;
} mark;

typedef struct meta {
    slice name, content;
    bool is_http_equiv;
} meta;

typedef struct {
    buffer elements; /* element */
    buffer lines;    /* line */
    text text;
    text noscript;
    buffer links;    /* page_link */
    buffer metas;    /* meta */
    buffer json_ld;  /* slice */
    buffer times, bylines, headings; /* mark */
    slice title, base, canonical, language;
} page;

static inline element *element_at(const page *page, size_t place) { return (element *)page->elements.items + place; }
static inline line *line_at(const page *page, size_t place) { return (line *)page->lines.items + place; }

/* Fills page, which is emptied before. It refers to html. */
void read_page(page *page, const char *html, size_t length);
void free_page(page *page);
/* The memory that it keeps for the next one. */
size_t page_bytes(page *page);

#endif

/* Text into lines. */
#include <string.h>

#include "builder.h"

/* A line takes a kilobyte to judge. Those after so many, far more than people write, become part of the last one. */
#define MOST_LINES 100000

/* Most of what stands between tags is the indentation of the next one. */
static bool is_blank(slice markup) {
    size_t i = 0;
    for (uint64_t word; i + 8 <= markup.length; i += 8) {
        memcpy(&word, markup.at + i, 8);
        if (word != UINT64_C(0x2020202020202020) && word != UINT64_C(0x0909090909090909)) break;
    }
    for (; i < markup.length; i++)
        if (!is_space(markup.at[i])) return false;
    return true;
}

void put_text(builder *b, slice markup) {
    if (b->state & (IN_TEMPLATE | IS_SILENT)) return;
    page *page = b->page;
    if (b->state & IN_NOSCRIPT) {
        put_markup(&page->noscript, markup, 0, false);
        page->noscript.has_space = true;
        return;
    }
    if (!(b->state & IN_PRE) && is_blank(markup)) { /* most of what stands between tags */
        page->text.has_space = true;
        return;
    }
    if (b->breaks && !(b->state & IN_PRE)) {
        if (b->breaks > 1) {
            end_line(b);
            b->follows_break = true;
        } else if (text_length(&page->text) > b->line_start) {
            page->text.has_space = false;
            put_bytes(&page->text, "\n", 1);
        }
        b->breaks = 0;
    }
    size_t before = text_length(&page->text);
    put_markup(&page->text, markup, b->line_start, b->state & IN_PRE);
    uint32_t added = (uint32_t)(text_length(&page->text) - before);
    if (b->is_linked) b->linked_bytes += added;
    if (b->is_bold) b->bold_bytes += added;
}

void put_break(builder *b) {
    if (b->state & (IN_TEMPLATE | IS_SILENT | IN_NOSCRIPT)) return;
    if (b->state & IN_PRE) put_bytes(&b->page->text, "\n", 1);
    else if (b->breaks < 2) b->breaks++;
}

static void add_line(builder *b, size_t start, size_t end) {
    buffer *lines = &b->page->lines;
    if (lines->count == MOST_LINES) {
        line *last = line_at(b->page, MOST_LINES - 1);
        last->length = (uint32_t)(end - last->start);
        return;
    }
    line *new = add_items(lines, 1, sizeof *new);
    if (new == NULL) return;
    *new = (line){
        .start = (uint32_t)start,
        .length = (uint32_t)(end - start),
        .owner = b->element,
        .row = b->row,
        .linked_bytes = b->linked_bytes,
        .bold_bytes = b->bold_bytes,
        .links = b->links,
        .state = b->state,
        .follows_break = b->follows_break,
    };
}

/* Ends the line at hand; if it has no text there is none. */
void end_line(builder *b) {
    text *text = &b->page->text;
    size_t end = text_length(text), start = b->line_start;
    while (end > start && is_space(*text_at(text, end - 1))) end--;
    /* Lines of code keep the space in front of the first one's words, and lose empty lines there. */
    for (size_t i = start; i < end && is_space(*text_at(text, i)); i++)
        if (*text_at(text, i) == '\n') start = i + 1;
    if (end > start) {
        add_line(b, start, end);
        text->bytes.count = end;
        put_bytes(text, "\n", 1);
    } else {
        text->bytes.count = b->line_start;
    }
    text->has_space = false;
    b->line_start = text_length(text);
    b->linked_bytes = b->bold_bytes = 0;
    b->links = 0;
    b->breaks = 0;
    b->follows_break = false;
}

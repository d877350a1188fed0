#include "choose.h"


/* A line that may well belong to the text: one in eight. */
#define RELAXED_VERDICT (-2.0f)

static bool is_cell(const page *page, const line *line) {
    unsigned tag = element_at(page, line->owner)->tag;
    return line->row && (tag == TAG_td || tag == TAG_th);
}

/* Lines end with a line feed, the cells of a row with a tab. */
static void put_line(const page *page, const line *line, const struct line *last, text *out) {
    if (last) {
        bool is_same_row = last->row == line->row && is_cell(page, last) && is_cell(page, line);
        put_bytes(out, is_same_row ? "\t" : "\n", 1);
    }
    put_bytes(out, text_at(&page->text, line->start), line->length);
}

static bool put_lines(const page *page, const float *verdicts, float least, text *out) {
    const line *last = NULL;
    for (size_t i = 0; i < page->lines.count; i++) {
        if (verdicts && verdicts[i] <= least) continue;
        const line *line = line_at(page, i);
        put_line(page, line, last, out);
        last = line;
    }
    return last != NULL;
}

enum text_source put_main_text(const page *page, const float *verdicts, text *out) {
    if (put_lines(page, verdicts, 0, out)) return FROM_MAIN;
    if (put_lines(page, verdicts, RELAXED_VERDICT, out)) return FROM_RELAXED;
    if (put_lines(page, NULL, 0, out)) return FROM_ALL;
    put_bytes(out, text_at(&page->noscript, 0), text_length(&page->noscript));
    return text_length(out) ? FROM_NOSCRIPT : FROM_NOTHING;
}

void put_all_text(const page *page, text *out) { put_lines(page, NULL, 0, out); }

/* What a page says of itself, and its links. */
#include <string.h>

#include "builder.h"

#define MOST_MARKS 50
#define MOST_METAS 500
#define MOST_BYLINE_BYTES 200

static bool contains(slice text, const char *wanted) {
    size_t length = strlen(wanted);
    for (size_t i = 0; i + length <= text.length; i++)
        if (lower(text.at[i]) == *wanted && begins_with((slice){text.at + i, text.length - i}, wanted)) return true;
    return false;
}

static void note_link(builder *b, slice href) {
    const token *tag = &b->token;
    if (href.length == 0) return;
    page_link *link = add_items(&b->page->links, 1, sizeof *link);
    if (link == NULL) return;
    slice rel = value(tag, REL);
    *link = (page_link){href, (uint8_t)tag->tag, has_word(rel, "nofollow"), tag->tag == TAG_link && has_word(rel, "next")};
}

static void note_meta(builder *b) {
    const token *tag = &b->token;
    slice name = value(tag, PROPERTY);
    if (name.length == 0) name = value(tag, NAME);
    if (name.length == 0) name = value(tag, ITEMPROP);
    bool is_http_equiv = name.length == 0;
    if (is_http_equiv) name = value(tag, HTTP_EQUIV);
    if (name.length == 0 || !has(tag, CONTENT) || b->page->metas.count >= MOST_METAS) return;
    meta *meta = add_items(&b->page->metas, 1, sizeof *meta);
    if (meta) *meta = (struct meta){name, value(tag, CONTENT), is_http_equiv};
}

static bool ends_with(slice text, const char *wanted) {
    size_t length = strlen(wanted);
    return text.length >= length && begins_with((slice){text.at + text.length - length, length}, wanted);
}

/* Classes that people give to the name of an author: post-author, byline, author-name and the like. */
static bool has_byline_class(slice names) {
    const char *end = names.at + names.length;
    for (const char *at = names.at; at < end;) {
        while (at < end && is_space(*at)) at++;
        const char *start = at;
        while (at < end && !is_space(*at)) at++;
        if (at == start) break;
        slice word = {start, (size_t)(at - start)};
        char last = lower(at[-1]);
        if (last == 'r' && ends_with(word, "author")) return true;
        if (last == 'e' && (ends_with(word, "byline") || ends_with(word, "author-name") || ends_with(word, "author_name") ||
                            ends_with(word, "byline-name") || ends_with(word, "byline_name")))
            return true;
    }
    return false;
}

bool is_byline(const token *tag) {
    if (!(tag->has & (1u << REL | 1u << ITEMPROP | 1u << CLASS))) return false;
    return has_word(value(tag, REL), "author") || has_word(value(tag, ITEMPROP), "author") ||
           has_byline_class(value(tag, CLASS));
}

void note_tag(builder *b) {
    const token *tag = &b->token;
    page *page = b->page;
    if (b->state & IN_TEMPLATE) return;
    switch (tag->tag) {
    case TAG_a:
        if (!has(tag, HREF)) return;
        b->links += b->links < UINT16_MAX;
        /* fall through */
    case TAG_area: note_link(b, value(tag, HREF)); return;
    case TAG_iframe:
    case TAG_frame: note_link(b, value(tag, SRC)); return;
    case TAG_link:
        note_link(b, value(tag, HREF));
        if (page->canonical.length == 0 && has_word(value(tag, REL), "canonical")) page->canonical = value(tag, HREF);
        return;
    case TAG_meta: note_meta(b); return;
    case TAG_base:
        if (page->base.length == 0) page->base = value(tag, HREF);
        return;
    case TAG_html:
        if (page->language.length == 0) page->language = value(tag, LANG);
        return;
    default: return;
    }
}

void note_raw_text(builder *b, const token *tag, slice contents) {
    page *page = b->page;
    if (b->state & IN_TEMPLATE) return;
    if (tag->tag == TAG_title) {
        for (size_t i = 0; page->title.length == 0 && i < contents.length; i++)
            if (!is_space(contents.at[i])) page->title = contents;
    } else if (tag->tag == TAG_script && contains(value(tag, TYPE), "ld+json") && page->json_ld.count < MOST_MARKS) {
        slice *place = add_items(&page->json_ld, 1, sizeof *place);
        if (place) *place = contents;
    }
}

/* Without the space at its ends, some of which goes when the line is ended. */
static mark *add_mark(builder *b, buffer *marks, size_t start) {
    const text *text = &b->page->text;
    size_t end = text_length(text);
    if (marks->count >= MOST_MARKS) return NULL;
    while (end > start && is_space(*text_at(text, end - 1))) end--;
    while (end > start && is_space(*text_at(text, start))) start++;
    mark *new = add_items(marks, 1, sizeof *new);
    if (new) *new = (mark){.start = end > start ? (uint32_t)start : 0, .length = end > start ? (uint32_t)(end - start) : 0};
    return new;
}

static void note_byline(builder *b, uint32_t start) {
    size_t end = text_length(&b->page->text);
    if (end > start && end - start <= MOST_BYLINE_BYTES) add_mark(b, &b->page->bylines, start);
}

/* Before the line that it may end is ended. */
void note_end(builder *b, const open_element *ended) {
    if (b->state & (IN_TEMPLATE | IN_NOSCRIPT)) return;
    if (ended->is_byline) note_byline(b, ended->text_start);
    if (ended->tag == TAG_time) {
        mark *time = add_mark(b, &b->page->times, ended->text_start);
        if (time) {
            time->value = ended->datetime;
            memcpy(time->names, ended->names, sizeof time->names);
        }
    } else if (tag_flags[ended->tag] & IS_HEADING) {
        mark *heading = add_mark(b, &b->page->headings, ended->text_start);
        if (heading) heading->level = (uint8_t)(ended->tag - TAG_h1 + 1);
    }
}

void note_end_of_link(builder *b) {
    if (b->is_byline_link && !(b->state & (IN_TEMPLATE | IN_NOSCRIPT))) note_byline(b, b->link_start);
    b->is_byline_link = false;
}

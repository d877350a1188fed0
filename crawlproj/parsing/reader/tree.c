/* Tags into elements, by a shortened version of the standard's tree construction.
 *
 * What matters for text is kept: which start tag ends which element, what an end tag closes, how tables, lists and
 * SVG nest. Formatting (a, b, i ...) is a state of the text and no element: for a reader that is what the standard's
 * reopening of it comes to. Text misplaced in tables stays where it is written.
 *
 * The stack of open elements has a limit, and what is deeper is not nested further: a page takes linear time.
 */
#include <string.h>

#include "builder.h"

/* -- start tags ------------------------------------------------------------------------------------------------ */

static void close_paragraph(builder *b) {
    if (b->open_counts[TAG_p] == 0) return;
    for (uint32_t i = b->depth; i > 0; i--) {
        enum tag tag = (enum tag)b->open[i - 1].tag;
        if (tag == TAG_p) pop_to(b, i - 1);
        if (tag == TAG_p || tag == TAG_button || tag_flags[tag] & IS_SCOPE) return;
    }
}

/* <li> ends another one, <dt> and <dd> each other, unless they are in a list inside of it. */
static void close_item(builder *b, enum tag one, enum tag other) {
    if (b->open_counts[one] + b->open_counts[other] == 0) return;
    for (uint32_t i = b->depth; i > 0; i--) {
        enum tag tag = (enum tag)b->open[i - 1].tag;
        if (tag == one || tag == other) {
            pop_to(b, i - 1);
            return;
        }
        if (tag_flags[tag] & IS_SPECIAL && tag != TAG_address && tag != TAG_div && tag != TAG_p) return;
    }
}

static bool is_table_part(enum tag tag) {
    return tag == TAG_tbody || tag == TAG_thead || tag == TAG_tfoot || tag == TAG_caption || tag == TAG_colgroup;
}

/* Goes back to where a row, a cell or another part of a table belongs; false outside of tables. */
static bool back_to_table(builder *b, enum tag part) {
    bool is_row = part == TAG_tr, is_cell = part == TAG_td || part == TAG_th;
    if (b->open_counts[TAG_table] == 0) return false;
    for (uint32_t i = b->depth; i > 0; i--) {
        enum tag tag = (enum tag)b->open[i - 1].tag;
        if (tag == TAG_template) return false;
        if (tag == TAG_table || (is_cell && tag == TAG_tr) ||
            ((is_row || is_cell) && (tag == TAG_tbody || tag == TAG_thead || tag == TAG_tfoot))) {
            pop_to(b, i);
            return true;
        }
    }
    return false;
}

/* Elements of HTML end SVG and MathML, but for the places in those that hold HTML. */
static void leave_foreign(builder *b) {
    while (b->state & IN_FOREIGN && b->depth > 0) pop(b);
}

static void start_foreign(builder *b) {
    const token *tag = &b->token;
    if (tag->is_self_closing) return;
    push(b);
    /* Names of SVG and MathML that hold HTML: foreignObject, desc, title; annotation-xml and words. */
    static const char *const holders[] = {"foreignobject", "desc", "title", "annotation-xml", "mi", "mo", "mn", "ms", "mtext"};
    for (size_t i = 0; i < sizeof holders / sizeof *holders; i++)
        if (tag->hash == name_hash(holders[i], strlen(holders[i]))) b->state &= (uint16_t)~IN_FOREIGN;
}

static void start_link(builder *b) {
    note_end_of_link(b);
    b->is_linked = has(&b->token, HREF);
    b->is_byline_link = is_byline(&b->token);
    b->link_start = (uint32_t)text_length(&b->page->text);
}

/* Returns whether the tag opens an element. */
static bool make_room(builder *b) {
    enum tag tag = b->token.tag;
    uint32_t flags = tag_flags[tag];
    if (flags & CLOSES_P || tag == TAG_table) close_paragraph(b);
    enum tag last = b->depth ? (enum tag)b->open[b->depth - 1].tag : TAG_UNKNOWN;
    if (flags & IS_HEADING && tag_flags[last] & IS_HEADING) pop(b);
    switch (tag) {
    case TAG_li: close_item(b, TAG_li, TAG_li); return true;
    case TAG_dd:
    case TAG_dt: close_item(b, TAG_dd, TAG_dt); return true;
    case TAG_optgroup:
    case TAG_option:
        if (last == TAG_option) pop(b);
        if (tag == TAG_optgroup && b->depth && b->open[b->depth - 1].tag == TAG_optgroup) pop(b);
        return true;
    case TAG_select:
    case TAG_button: close_tag(b, tag, IS_SCOPE); return true;
    case TAG_textarea:
    case TAG_input: close_tag(b, TAG_select, IS_SCOPE); return true;
    case TAG_tr:
    case TAG_td:
    case TAG_th:
    case TAG_tbody:
    case TAG_thead:
    case TAG_tfoot:
    case TAG_caption:
    case TAG_colgroup: return back_to_table(b, tag);
    default: return true;
    }
}

static void start_tag(builder *b) {
    const token *tag = &b->token;
    if (b->state & IN_FOREIGN) {
        if (!(tag_flags[tag->tag] & IS_BREAKOUT)) {
            if (tag->tag == TAG_a) start_link(b);
            note_tag(b);
            if (tag->tag != TAG_a) start_foreign(b);
            return;
        }
        leave_foreign(b);
    }
    uint32_t flags = tag_flags[tag->tag];
    note_tag(b);
    switch (tag->tag) {
    case TAG_a: start_link(b); return;
    case TAG_br: put_break(b); return;
    case TAG_html:
    case TAG_head: return;
    case TAG_body:
        if (element_at(b->page, 0)->hash == 0) set_names(element_at(b->page, 0), tag);
        return;
    default: break;
    }
    if (flags & IS_FORMATTING) {
        if (flags & IS_BOLD) b->is_bold = true;
        return;
    }
    if (!make_room(b)) {
        end_line(b);
        return;
    }
    if (flags & IS_VOID) {
        if (flags & IS_BLOCK) end_line(b);
        return;
    }
    if (flags & (IS_RAW | IS_RCDATA) || tag->tag == TAG_plaintext) {
        slice contents = raw_text(&b->scanner, tag->tag);
        note_raw_text(b, tag, contents);
        if (tag->tag == TAG_textarea || tag->tag == TAG_xmp || tag->tag == TAG_plaintext) {
            uint32_t depth = b->depth;
            push(b);
            uint16_t state = b->state;
            b->state |= IN_PRE;
            put_text(b, contents);
            b->state = state;
            pop_to(b, depth);
        }
        return;
    }
    if (tag->is_self_closing && (tag->tag == TAG_svg || tag->tag == TAG_math)) return;
    push(b);
}

/* -- end tags -------------------------------------------------------------------------------------------------- */

static void end_ordinary(builder *b, const token *tag) {
    if (tag->tag != TAG_UNKNOWN && b->open_counts[tag->tag] == 0) return;
    for (uint32_t i = b->depth; i > 0; i--) {
        const open_element *open = &b->open[i - 1];
        if (open->tag == tag->tag && open->hash == tag->hash) {
            pop_to(b, i - 1);
            return;
        }
        if (tag_flags[open->tag] & IS_SPECIAL) return;
    }
}

static void end_heading(builder *b) {
    for (uint32_t i = b->depth; i > 0; i--) {
        uint32_t flags = tag_flags[b->open[i - 1].tag];
        if (flags & IS_HEADING) pop_to(b, i - 1);
        if (flags & (IS_HEADING | IS_SCOPE)) return;
    }
}

static bool is_in_table(enum tag tag) {
    return tag == TAG_table || tag == TAG_tr || tag == TAG_td || tag == TAG_th || is_table_part(tag);
}

/* Parts of tables are closed from anywhere inside of the same table. */
static void end_in_table(builder *b, enum tag wanted) {
    if (b->open_counts[wanted] == 0) return;
    for (uint32_t i = b->depth; i > 0; i--) {
        enum tag tag = (enum tag)b->open[i - 1].tag;
        if (tag == wanted) pop_to(b, i - 1);
        if (tag == wanted || tag == TAG_table || tag == TAG_template) return;
    }
}

static void end_tag(builder *b) {
    const token *tag = &b->token;
    uint32_t flags = tag_flags[tag->tag];
    if (tag->tag == TAG_a) {
        note_end_of_link(b);
        b->is_linked = false;
    } else if (tag->tag == TAG_br) {
        put_break(b);
    } else if (flags & IS_FORMATTING) {
        if (flags & IS_BOLD) b->is_bold = false;
    } else if (tag->tag == TAG_html || tag->tag == TAG_body || tag->tag == TAG_head) {
        end_line(b);
    } else if (flags & IS_HEADING) {
        end_heading(b);
    } else if (is_in_table(tag->tag)) {
        end_in_table(b, tag->tag);
    } else if (flags & IS_SPECIAL) {
        bool is_closed = close_tag(b, tag->tag, IS_SCOPE | (tag->tag == TAG_li ? IS_LIST_SCOPE : 0));
        if (!is_closed && flags & IS_BLOCK) end_line(b);
    } else {
        end_ordinary(b, tag);
    }
}

/* -- the page -------------------------------------------------------------------------------------------------- */

#define PAGE_BUFFERS(page) \
    {&(page)->elements, &(page)->lines,   &(page)->text.bytes, &(page)->noscript.bytes, &(page)->links, \
     &(page)->metas,    &(page)->json_ld, &(page)->times,      &(page)->bylines,        &(page)->headings}

static void empty_page(page *page) {
    buffer *buffers[] = PAGE_BUFFERS(page);
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) buffers[i]->count = 0;
    page->text.has_space = page->noscript.has_space = false;
    page->title = page->base = page->canonical = page->language = (slice){"", 0};
}

void free_page(page *page) {
    buffer *buffers[] = PAGE_BUFFERS(page);
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) free_buffer(buffers[i]);
}

size_t page_bytes(page *page) {
    buffer *buffers[] = PAGE_BUFFERS(page);
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) bytes += buffers[i]->room_bytes;
    return bytes;
}

void read_page(page *page, const char *html, size_t length) {
    static builder b; /* large; Python's lock keeps others out */
    empty_page(page);
    memset(&b, 0, sizeof b);
    b.page = page;
    b.scanner = (scanner){html, html + length, false};
    b.token.tag = TAG_body;
    add_element(&b);
    while (!no_memory) {
        b.scanner.allows_cdata = b.state & IN_FOREIGN;
        next_token(&b.scanner, &b.token);
        if (b.token.kind == TOKEN_END) break;
        if (b.token.kind == TOKEN_TEXT) put_text(&b, b.token.text);
        else if (b.token.kind == TOKEN_START_TAG) start_tag(&b);
        else end_tag(&b);
    }
    pop_to(&b, 0);
    end_line(&b);
    if (!no_memory) element_at(page, 0)->end_line = (uint32_t)page->lines.count;
}

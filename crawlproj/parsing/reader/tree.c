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

/* -- the stack ----------------------------------------------------------------------------------------------- */

static uint64_t hash_of(const token *tag) {
    slice names = value(tag, CLASS);
    uint64_t hash = tag->hash * UINT64_C(0x9E3779B97F4A7C15), word = 0;
    size_t i = 0;
    for (; i + 8 <= names.length; i += 8) {
        memcpy(&word, names.at + i, 8);
        hash = (hash ^ word) * UINT64_C(0xD6E8FEB86659FD93);
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, names.at + i, names.length - i);
    hash = (hash ^ word ^ names.length << 56) * UINT64_C(0xD6E8FEB86659FD93);
    return hash ^ hash >> 29;
}

static void set_names(element *element, const token *tag) {
    element->names[CLASS_NAMES] = value(tag, CLASS);
    element->names[ID_NAMES] = value(tag, ID);
    element->names[ITEMPROP_NAMES] = value(tag, ITEMPROP);
    element->names[ROLE_NAMES] = value(tag, ROLE);
    element->names[DATA_NAMES] = value(tag, DATA_NAME);
    element->hash = hash_of(tag);
}

static void add_element(builder *b) {
    uint32_t parent = b->element;
    element *new = add_items(&b->page->elements, 1, sizeof *new);
    if (new == NULL) return;
    uint32_t number = (uint32_t)b->page->elements.count - 1;
    memset(new, 0, sizeof *new);
    if (b->token.has) set_names(new, &b->token);
    else new->hash = b->token.hash;
    new->parent = parent;
    new->first_line = (uint32_t)b->page->lines.count;
    new->tag = (uint16_t)b->token.tag;
    new->depth = number ? (uint16_t)(element_at(b->page, parent)->depth + 1) : 0;
    new->state = b->state;
    b->element = number;
}

/* Styles as they are written in attributes. */
static bool hides(slice style) {
    for (size_t i = 0; i + 10 < style.length; i++) {
        slice rest = {style.at + i, style.length - i};
        bool is_display = begins_with(rest, "display"), is_visibility = !is_display && begins_with(rest, "visibility");
        if (!is_display && !is_visibility) continue;
        rest.at += is_display ? 7 : 10, rest.length -= is_display ? 7 : 10;
        while (rest.length && (is_space(*rest.at) || *rest.at == ':')) rest.at++, rest.length--;
        if (begins_with(rest, is_display ? "none" : "hidden")) return true;
    }
    return false;
}

static uint16_t own_state(builder *b, bool is_block) {
    const token *tag = &b->token;
    uint16_t state = 0;
    switch (tag->tag) {
    case TAG_svg: state = IN_FOREIGN | IS_SILENT; break;
    case TAG_math: state = IN_FOREIGN; break;
    case TAG_pre: state = IN_PRE; break;
    case TAG_noscript: state = IN_NOSCRIPT; break;
    case TAG_template: state = IN_TEMPLATE; break;
    default: break;
    }
    if (tag->has & (1u << HIDDEN | 1u << STYLE | 1u << ARIA_HIDDEN)) {
        bool is_hidden = has(tag, HIDDEN) || (has(tag, STYLE) && hides(value(tag, STYLE)));
        /* A block may be shown by a script later on: that is judged with all that is known of it. */
        if (is_hidden) state |= is_block ? IS_HIDDEN : IS_SILENT;
        if (begins_with(value(tag, ARIA_HIDDEN), "true")) state |= IS_ARIA_HIDDEN;
    }
    if (!is_block && has(tag, CLASS)) {
        slice names = value(tag, CLASS);
        if (has_word(names, "sr-only") || has_word(names, "visually-hidden") || has_word(names, "screen-reader-text"))
            state |= IS_SILENT;
    }
    return state;
}

static void push(builder *b) {
    const token *tag = &b->token;
    bool is_block = tag_flags[tag->tag] & IS_BLOCK;
    if (is_block) end_line(b);
    if (b->depth == MOST_DEPTH) return;
    open_element *new = &b->open[b->depth++];
    new->hash = tag->hash;
    new->element = b->element;
    new->text_start = (uint32_t)text_length(&b->page->text);
    new->row = b->row;
    new->state = b->state;
    new->tag = (uint16_t)tag->tag;
    new->is_linked = b->is_linked;
    new->is_bold = b->is_bold;
    new->is_block = is_block;
    new->is_byline = is_byline(tag);
    if (tag->tag == TAG_time) {
        new->datetime = value(tag, DATETIME);
        new->names[0] = value(tag, CLASS);
        new->names[1] = value(tag, ITEMPROP);
    }
    b->open_counts[tag->tag]++;
    b->state |= own_state(b, is_block);
    if (is_block) add_element(b);
    if (tag_flags[tag->tag] & IS_SCOPE) b->is_linked = b->is_bold = false;
    if (tag->tag == TAG_tr) b->row = b->element;
    else if (tag->tag == TAG_table) b->row = 0;
}

static void pop(builder *b) {
    open_element *last = &b->open[--b->depth];
    b->open_counts[last->tag]--;
    if (last->is_byline || last->tag == TAG_time || tag_flags[last->tag] & IS_HEADING) note_end(b, last);
    if (last->is_block) {
        end_line(b);
        element_at(b->page, b->element)->end_line = (uint32_t)b->page->lines.count;
        b->element = last->element;
    }
    b->state = last->state;
    if (tag_flags[last->tag] & IS_SCOPE) {
        b->is_linked = last->is_linked;
        b->is_bold = last->is_bold;
    }
    b->row = last->row;
}

static void pop_to(builder *b, uint32_t depth) {
    while (b->depth > depth) pop(b);
}

/* Pops all up to the innermost open one of that tag, unless something in stops is nearer. */
static bool close_tag(builder *b, enum tag tag, uint32_t stops) {
    if (b->open_counts[tag] == 0) return false;
    for (uint32_t i = b->depth; i > 0; i--) {
        if (b->open[i - 1].tag == tag) {
            pop_to(b, i - 1);
            return true;
        }
        if (tag_flags[b->open[i - 1].tag] & stops) return false;
    }
    return false;
}

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
    b->scanner.allows_cdata = b->state & IN_FOREIGN;
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
    b->scanner.allows_cdata = b->state & IN_FOREIGN;
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

void read_page(page *page, const char *html, size_t length) {
    static builder b; /* large; Python's lock keeps others out */
    empty_page(page);
    memset(&b, 0, sizeof b);
    b.page = page;
    b.scanner = (scanner){html, html + length, false};
    b.token.tag = TAG_body;
    add_element(&b);
    if (no_memory) return;
    while (!no_memory) {
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

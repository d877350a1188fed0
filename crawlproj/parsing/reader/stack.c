/* The stack of open elements. */
#include <string.h>

#include "builder.h"

void set_names(element *element, const token *tag) {
    element->names[CLASS_NAMES] = value(tag, CLASS);
    element->names[ID_NAMES] = value(tag, ID);
    element->names[ITEMPROP_NAMES] = value(tag, ITEMPROP);
    element->names[ROLE_NAMES] = value(tag, ROLE);
    element->names[DATA_NAMES] = value(tag, DATA_NAME);
    element->hash = hash_bytes(value(tag, CLASS).at, value(tag, CLASS).length, tag->hash);
}

void add_element(builder *b) {
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

void push(builder *b) {
    const token *tag = &b->token;
    /* A formula and an icon are part of their line. */
    bool is_block = tag_flags[tag->tag] & IS_BLOCK && !(b->state & IN_FOREIGN);
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

void pop(builder *b) {
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

void pop_to(builder *b, uint32_t depth) {
    while (b->depth > depth) pop(b);
}

bool close_tag(builder *b, enum tag tag, uint32_t stops) {
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

/* What a page says, found in one walk through the tree that lexbor makes of its HTML.
 *
 * __init__.py loads this, and lends it the lexbor inside of selectolax. Nothing is known here of lexbor's
 * structures: all goes through functions that it exports. What elements are, and what their names mean, Python
 * tells; html.py and text.py do the same in Python, and both must come to the same, letter by letter.
 *
 * A page is read by page_read(), which fills the parts HEAD, HREFS and NAMES: fields, each ended by a
 * zero byte, which no tree contains. Its text is then made by page_text(). Whatever was got from a page is
 * valid until the next one is read. A struct page is for one thread at a time.
 *
 * Nothing here recurses: a page may be nested as deep as the parser let it be.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What Python says of each tag; __init__.py has them in this order. */
enum kind {
    UNWRAPPED = 1 << 0, /* ends no line */
    UNSEEN = 1 << 1,
    DROPPED = 1 << 2, /* never what a page is about */
    NAMED = 1 << 3,   /* may be called boilerplate */
    PARAGRAPH = 1 << 4,
    ASIDE = 1 << 5,
    ARTICLE = 1 << 6,
    BODY = 1 << 7,
    TITLE = 1 << 8,
    TITLE_HOME = 1 << 9, /* where a title is that of the page */
    META = 1 << 10,
    BASE = 1 << 11,
    ANCHOR = 1 << 12,
    AREA = 1 << 13,
    IFRAME = 1 << 14,
    FRAME = 1 << 15,
    LINK = 1 << 16,
    TEXT_NODE = 1 << 17,
    OF_HEAD = TITLE | META | BASE | LINK,
};
enum hint { HINT_BODY = 1, HINT_NOTHING = 0, HINT_SUSPECT = -1, HINT_BOILERPLATE = -2 };
enum mode { FAST = 0, ALL = 1 };
enum part { HEAD, HREFS, NAMES, TEXT, LINKED, PARTS };
enum { OK = 0, NO_MEMORY = 1, NOT_PARSED = 2 };

#define PARAGRAPH_CHARS 40
#define GENERATIONS 3
#define MOST_NAMES_CHARS 200
#define KNOWN_NAMES 64
#define WITHOUT_EVENTS 1u
#define LEXBOR_NO_MEMORY 2u
#define MOST_BYTES (1u << 30)
#define LARGE_BYTES (4u << 20)
#define LARGE_ITEMS (200u << 10)

static const double SHARES[GENERATIONS] = {1.0, 0.7, 0.5};
static const double BELIEVED_SUSPECT = 0.15, BELIEVED_BOILERPLATE = 0.6;

/* -- lexbor ------------------------------------------------------------------------------------------------ */

static struct {
    void *(*create)(void);
    void *(*destroy)(void *document);
    void (*clean)(void *document);
    void (*set_options)(void *document, unsigned options);
    unsigned (*parse)(void *document, const unsigned char *html, size_t length);
    void *(*body)(void *document);
    void *(*root)(void *document);
    void *(*first_child)(void *node);
    void *(*next)(void *node);
    void *(*parent)(void *node);
    uintptr_t (*tag)(void *node);
    const char *(*text)(void *node, size_t *length);
    void *(*first_attribute)(void *element);
    void *(*next_attribute)(void *attribute);
    const char *(*name)(void *attribute, size_t *length);
    const char *(*value)(void *attribute, size_t *length);
} lexbor;

/* Returns the name of what the library has not, NULL if it has all. */
const char *page_lend(void *library) {
    static const struct {
        void *place;
        const char *name;
    } wanted[] = {
        {&lexbor.create, "lxb_html_document_create"},
        {&lexbor.destroy, "lxb_html_document_destroy"},
        {&lexbor.clean, "lxb_html_document_clean"},
        {&lexbor.set_options, "lxb_html_document_dom_opt_set_noi"},
        {&lexbor.parse, "lxb_html_document_parse"},
        {&lexbor.body, "lxb_html_document_body_element_noi"},
        {&lexbor.root, "lxb_dom_document_root"},
        {&lexbor.first_child, "lxb_dom_node_first_child_noi"},
        {&lexbor.next, "lxb_dom_node_next_noi"},
        {&lexbor.parent, "lxb_dom_node_parent_noi"},
        {&lexbor.tag, "lxb_dom_node_tag_id_noi"},
        {&lexbor.text, "lxb_dom_node_text_content"},
        {&lexbor.first_attribute, "lxb_dom_element_first_attribute_noi"},
        {&lexbor.next_attribute, "lxb_dom_element_next_attribute_noi"},
        {&lexbor.name, "lxb_dom_attr_qualified_name"},
        {&lexbor.value, "lxb_dom_attr_value_noi"},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *found = dlsym(library, wanted[i].name);
        if (found == NULL) return wanted[i].name;
        memcpy(wanted[i].place, &found, sizeof found);
    }
    return NULL;
}

/* -- the page ---------------------------------------------------------------------------------------------- */

typedef struct {
    char *data;
    size_t length, room;
} buffer;

/* An element, a text, a comment: in the order of the page, so that what is inside of one follows it. */
typedef struct {
    void *node;
    const char *text; /* NULL: it is none */
    double score;     /* as the block of the text */
    uint32_t bytes;
    uint32_t chars; /* of all text inside */
    uint32_t paragraph_chars; /* of the paragraphs directly inside */
    uint32_t parent, end;
    uint32_t around; /* the innermost element around it that ends a line */
    int32_t hint; /* where its hint is; -1: its names say nothing, -2: not asked for yet */
    uint32_t kind;
    bool is_gone;
} item;

/* Names met before: most of a page has the same few. */
struct known {
    size_t start, length;
    int32_t number;
};

struct page {
    buffer parts[PARTS]; /* first: Python reads them */
    bool has_odd_space;  /* in TEXT or LINKED: lines may have white space around them for Python */
    void *document; /* NULL: to be made */
    const uint32_t *kinds;
    size_t kind_count;
    item *items;
    uint32_t count;
    size_t room;
    uint32_t *blocks; /* those directly around paragraphs, in their order */
    size_t block_count, block_room;
    struct known known[KNOWN_NAMES];
    int32_t hint_count;
    uint32_t body, root; /* their places, 0: there is none */
    bool has_title; /* one that says something: in pictures, titles may be inside of others without end */
    bool is_new_line, is_space; /* stand before what is put next */
    bool no_memory;
    bool is_large; /* what it takes is not kept for the next page */
};

static bool grow(struct page *page, void **data, size_t *room, size_t needed, size_t size) {
    if (needed <= *room) return true;
    size_t more = *room * 2 > needed ? *room * 2 : needed + 64;
    void *larger = more > SIZE_MAX / size ? NULL : realloc(*data, more * size);
    if (larger == NULL) {
        page->no_memory = true;
        return false;
    }
    *data = larger;
    *room = more;
    return true;
}

static void put(struct page *page, enum part part, const char *data, size_t length) {
    buffer *out = &page->parts[part];
    if (length == 0 || !grow(page, (void **)&out->data, &out->room, out->length + length, 1)) return;
    memcpy(out->data + out->length, data, length);
    out->length += length;
}

static void end_field(struct page *page, enum part part) { put(page, part, "", 1); }

static bool is_first_byte(char byte) { return ((unsigned char)byte & 0xC0) != 0x80; }

static uint32_t chars_in(const char *text, size_t bytes) {
    uint32_t chars = 0;
    for (size_t i = 0; i < bytes; i++) chars += is_first_byte(text[i]);
    return chars;
}

static uint32_t add_item(struct page *page, void *node, uint32_t parent) {
    if (!grow(page, (void **)&page->items, &page->room, page->count + 1, sizeof(item))) return 0;
    item *new = &page->items[page->count];
    memset(new, 0, sizeof *new);
    new->node = node;
    new->parent = parent;
    new->end = page->count + 1;
    new->around = page->items[parent].kind & UNWRAPPED ? page->items[parent].around : parent;
    new->hint = -2;
    uintptr_t tag = lexbor.tag(node);
    new->kind = tag < page->kind_count ? page->kinds[tag] : 0;
    if (new->kind & TEXT_NODE) {
        size_t bytes = 0;
        new->text = lexbor.text(node, &bytes);
        new->bytes = new->text ? (uint32_t)bytes : 0;
        new->chars = chars_in(new->text, new->bytes);
    }
    return page->count++;
}

static void flatten(struct page *page) {
    void *body = lexbor.body(page->document), *root = lexbor.root(page->document);
    void *node = page->document;
    uint32_t parent = 0;
    for (;;) {
        uint32_t place = add_item(page, node, parent);
        if (page->no_memory) return;
        if (node == body) page->body = place;
        if (node == root) page->root = place;
        void *next = lexbor.first_child(node);
        if (next != NULL) {
            parent = place;
        } else {
            while (node != page->document && (next = lexbor.next(node)) == NULL) {
                node = lexbor.parent(node);
                page->items[parent].end = page->count;
                parent = page->items[parent].parent;
            }
            if (node == page->document) break;
        }
        node = next;
    }
    for (uint32_t i = page->count - 1; i > 0; i--) page->items[page->items[i].parent].chars += page->items[i].chars;
}

/* -- attributes -------------------------------------------------------------------------------------------- */

typedef struct {
    const char *name; /* NULL ends a list of them */
    const char *data;
    size_t length;
    bool is_there;
} attribute;

static void find_attributes(void *element, attribute *wanted) {
    for (void *found = lexbor.first_attribute(element); found; found = lexbor.next_attribute(found)) {
        size_t length = 0;
        const char *name = lexbor.name(found, &length);
        if (name == NULL) continue;
        for (attribute *one = wanted; one->name; one++) {
            if (strlen(one->name) != length || memcmp(one->name, name, length) != 0) continue;
            one->data = lexbor.value(found, &one->length);
            if (one->data == NULL) one->length = 0;
            one->is_there = true;
        }
    }
}

static void put_value(struct page *page, enum part part, const attribute *value) {
    put(page, part, value->data, value->length);
    end_field(page, part);
}

/* -- the head, and links ----------------------------------------------------------------------------------- */

/* Four fields: a letter for what it is, and up to three values. */
static void read_of_head(struct page *page, uint32_t place) {
    const item *it = &page->items[place];
    attribute values[] = {{0}, {0}, {0}, {0}};
    char letter = 0;
    if (place == page->root) {
        letter = 'h';
        values[0].name = "lang";
    } else if (it->kind & META) {
        letter = 'm';
        values[0].name = "name", values[1].name = "property", values[2].name = "content";
    } else if (it->kind & BASE) {
        letter = 'b';
        values[0].name = "href";
    } else if (it->kind & LINK) {
        letter = 'l';
        values[0].name = "rel", values[1].name = "href";
    } else if (it->kind & TITLE && page->items[it->parent].kind & TITLE_HOME && !page->has_title) {
        letter = 't';
        page->has_title = it->chars > 0;
    } else {
        return;
    }
    put(page, HEAD, &letter, 1);
    end_field(page, HEAD);
    find_attributes(it->node, values);
    for (uint32_t i = place; it->kind & TITLE && i < it->end; i++)
        if (page->items[i].text) put(page, HEAD, page->items[i].text, page->items[i].bytes);
    for (int i = 0; i < 3; i++) put_value(page, HEAD, &values[i]);
}

/* Three fields: "link" for an element of that name, what its rel says, and where it leads. */
static void read_link(struct page *page, uint32_t place) {
    const item *it = &page->items[place];
    attribute values[] = {{.name = it->kind & (IFRAME | FRAME) ? "src" : "href"}, {.name = "rel"}, {0}};
    find_attributes(it->node, values);
    if (values[0].length == 0) return;
    if (it->kind & LINK) put(page, HREFS, "link", 4);
    end_field(page, HREFS);
    put_value(page, HREFS, &values[1]);
    put_value(page, HREFS, &values[0]);
}

/* -- names --------------------------------------------------------------------------------------------------- */

static void cut_names(struct page *page, size_t start) {
    buffer *names = &page->parts[NAMES];
    size_t chars = 0;
    for (size_t i = start; i < names->length; i++)
        if (is_first_byte(names->data[i]) && ++chars > MOST_NAMES_CHARS) names->length = i;
}

/* Returns the number of the names last put, which began at start; takes them back if the page had them before. */
static int32_t number_of_names(struct page *page, size_t start) {
    buffer *names = &page->parts[NAMES];
    uint32_t hash = 2166136261u;
    for (size_t i = start; i < names->length; i++) hash = (hash ^ (unsigned char)names->data[i]) * 16777619u;
    struct known *known = &page->known[hash % KNOWN_NAMES];
    size_t length = names->length - start;
    if (known->length == length && memcmp(names->data + known->start, names->data + start, length) == 0) {
        names->length = start;
        return known->number;
    }
    *known = (struct known){start, length, page->hint_count};
    return page->hint_count++;
}

/* Ask Python what the names of an element say. Three fields: names, style, role. */
static void ask_hint(struct page *page, uint32_t place) {
    item *it = &page->items[place];
    if (it->hint != -2) return;
    it->hint = -1;
    enum { CLASS, ID, ITEMPROP, HIDDEN, ARIA, STYLE, ROLE };
    attribute values[] = {
        {.name = "class"}, {.name = "id"},   {.name = "itemprop"}, {.name = "hidden"}, {.name = "aria-hidden"},
        {.name = "style"}, {.name = "role"}, {0}};
    find_attributes(it->node, values);
    const attribute *aria = &values[ARIA];
    bool is_hidden = values[HIDDEN].is_there || (aria->length == 4 && memcmp(aria->data, "true", 4) == 0);
    bool is_named = values[CLASS].length || values[ID].length || values[ITEMPROP].length;
    if (!is_hidden && !is_named && !values[STYLE].length && !values[ROLE].length) return;
    size_t start = page->parts[NAMES].length;
    put(page, NAMES, values[CLASS].data, values[CLASS].length);
    for (int i = ID; i <= ITEMPROP; i++) {
        put(page, NAMES, " ", 1);
        put(page, NAMES, values[i].data, values[i].length);
    }
    cut_names(page, start);
    end_field(page, NAMES);
    if (is_hidden) put(page, NAMES, "display:none", 12);
    else put(page, NAMES, values[STYLE].data, values[STYLE].length);
    end_field(page, NAMES);
    put_value(page, NAMES, &values[ROLE]);
    it->hint = number_of_names(page, start);
}

static int hint_of(const struct page *page, uint32_t place, const signed char *hints) {
    int32_t hint = page->items[place].hint;
    return hint < 0 ? HINT_NOTHING : hints[hint];
}

static int hint_of_block(const struct page *page, uint32_t place, const signed char *hints) {
    unsigned kind = page->items[place].kind;
    if (kind & ASIDE) return HINT_BOILERPLATE;
    if (kind & BODY) return HINT_NOTHING;
    int hint = hint_of(page, place, hints);
    return kind & ARTICLE && hint < HINT_NOTHING ? HINT_NOTHING : hint;
}

/* Returns the block around another, or 0. */
static uint32_t outside_of(const struct page *page, uint32_t place) {
    return page->items[place].kind & BODY ? 0 : page->items[place].parent;
}

/* -- the text ------------------------------------------------------------------------------------------------ */

static void note_block(struct page *page, uint32_t paragraph) {
    item *block = &page->items[page->items[paragraph].parent];
    if (page->items[paragraph].chars < PARAGRAPH_CHARS) return;
    if (block->paragraph_chars == 0) {
        if (!grow(page, (void **)&page->blocks, &page->block_room, page->block_count + 1, sizeof(uint32_t))) return;
        page->blocks[page->block_count++] = page->items[paragraph].parent;
    }
    block->paragraph_chars += page->items[paragraph].chars;
}

/* Returns the block that most of the text of paragraphs is in, or 0. */
static uint32_t block_of_paragraphs(struct page *page, const signed char *hints) {
    item *items = page->items;
    uint32_t scored[GENERATIONS];
    double scores[GENERATIONS];
    for (size_t i = 0; i < page->block_count; i++) {
        uint32_t place = page->blocks[i];
        double chars = (double)items[place].paragraph_chars, trust = 1.0;
        int count = 0;
        while (count < GENERATIONS) {
            int hint = hint_of_block(page, place, hints);
            if (hint == HINT_BOILERPLATE) trust = 0.1;
            scored[count] = place;
            scores[count] = chars * SHARES[count] * (hint == HINT_BODY ? 2.0 : 1.0);
            count++;
            if ((place = outside_of(page, place)) == 0) break;
        }
        for (int j = 0; j < count; j++) items[scored[j]].score += scores[j] * trust;
    }
    /* Of equals the one that was met first. */
    uint32_t best = 0;
    for (size_t i = 0; i < page->block_count; i++) {
        uint32_t place = page->blocks[i];
        for (int j = 0; j < GENERATIONS; j++) {
            if (best == 0 || items[place].score > items[best].score) best = place;
            if ((place = outside_of(page, place)) == 0) break;
        }
    }
    return best;
}

/* Take out of a block what has the name of boilerplate, innermost first; no name is believed of the greater part. */
static void drop_named(struct page *page, uint32_t block, const signed char *hints) {
    item *items = page->items;
    double chars = (double)items[block].chars;
    for (uint32_t i = items[block].end - 1; i > block; i--) {
        int hint = items[i].kind & NAMED ? hint_of(page, i, hints) : HINT_NOTHING;
        if (hint >= HINT_NOTHING) continue;
        double believed = chars * (hint == HINT_SUSPECT ? BELIEVED_SUSPECT : BELIEVED_BOILERPLATE);
        uint32_t gone = items[i].chars;
        if ((double)gone >= believed) continue;
        items[i].is_gone = true;
        for (uint32_t around = i; gone && around != block; around = items[around].parent) items[around].chars -= gone;
    }
}

/* White space to Python that is none to HTML, but for the no-break space, which is both here. */
static bool is_odd_space(const unsigned char *at, const unsigned char *end) {
    if (*at < 0x80) return *at == '\v' || (*at >= 0x1C && *at <= 0x1F);
    if (*at == 0xC2) return end - at > 1 && at[1] == 0x85;
    if (*at < 0xE1 || *at > 0xE3 || end - at < 3) return false;
    unsigned point = (unsigned)(*at & 0x0F) << 12 | (unsigned)(at[1] & 0x3F) << 6 | (unsigned)(at[2] & 0x3F);
    return point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
           point == 0x202F || point == 0x205F || point == 0x3000;
}

/* Lines without white space around them, and one space where there is any inside; none is empty. */
static void end_line(struct page *page, enum part part) {
    if (page->parts[part].length) page->is_new_line = true;
    page->is_space = false;
}

static void put_word(struct page *page, enum part part, const char *word, size_t bytes) {
    if (page->is_new_line) put(page, part, "\n", 1);
    else if (page->is_space && page->parts[part].length) put(page, part, " ", 1);
    page->is_new_line = page->is_space = false;
    put(page, part, word, bytes);
}

static void put_folded(struct page *page, enum part part, const char *text, size_t bytes) {
    const unsigned char *at = (const unsigned char *)text, *end = at + bytes, *word = at;
    for (; at < end; at++) {
        if (*at > ' ' && (*at < 0xC2 || *at > 0xE3)) continue;
        bool is_two = *at == 0xC2 && end - at > 1 && at[1] == 0xA0;
        if (!is_two && *at != ' ' && *at != '\n' && *at != '\t' && *at != '\r' && *at != '\f') {
            page->has_odd_space = page->has_odd_space || is_odd_space(at, end);
            continue;
        }
        if (at > word) put_word(page, part, (const char *)word, (size_t)(at - word));
        if (*at == '\f') end_line(page, part);
        else page->is_space = true;
        at += is_two;
        word = at + 1;
    }
    if (end > word) put_word(page, part, (const char *)word, (size_t)(end - word));
}

/* The text inside of an element. */
static void put_lines(struct page *page, uint32_t block, unsigned unseen, unsigned dropped) {
    const item *items = page->items;
    bool is_new_line = false;
    uint32_t around = block;
    for (uint32_t i = block + 1; i < items[block].end;) {
        const item *it = &items[i];
        if (it->text) {
            if (is_new_line || it->around != around) end_line(page, TEXT);
            put_folded(page, TEXT, it->text, it->bytes);
            is_new_line = false;
            around = it->around;
            i++;
        } else if (it->kind & unseen) {
            i = it->end;
        } else if (it->is_gone || it->kind & dropped) {
            is_new_line = true;
            i = it->end;
        } else {
            is_new_line = is_new_line || !(it->kind & UNWRAPPED);
            i++;
        }
    }
}

/* A link inside of another, as pictures may have them without end, is part of that. */
static void put_linked(struct page *page, uint32_t block) {
    const item *items = page->items;
    uint32_t end = 0;
    for (uint32_t i = block + 1; i < items[block].end; i++) {
        if (i >= end && items[i].kind & ANCHOR) {
            end_line(page, LINKED);
            end = items[i].end;
        }
        if (i < end && items[i].text) put_folded(page, LINKED, items[i].text, items[i].bytes);
    }
}

/* -- what Python calls --------------------------------------------------------------------------------------- */

/* Another number whenever what passes between Python and this changes; __init__.py has the same. */
int page_version(void) { return 2; }

/* kinds says of each number of a tag what it is; it must stay where it is. */
struct page *page_new(const uint32_t *kinds, size_t count) {
    struct page *page = calloc(1, sizeof *page);
    if (page == NULL) return NULL;
    page->kinds = kinds;
    page->kind_count = count;
    return page;
}

static void give_back(struct page *page) {
    for (int i = 0; i < PARTS; i++) free(page->parts[i].data);
    memset(page->parts, 0, sizeof page->parts);
    free(page->items);
    free(page->blocks);
    page->items = NULL;
    page->blocks = NULL;
    page->room = page->block_room = 0;
    page->body = 0;
    if (page->document) lexbor.destroy(page->document);
    page->document = NULL;
}

void page_free(struct page *page) {
    give_back(page);
    free(page);
}

static bool has_document(struct page *page) {
    if (page->document) {
        lexbor.clean(page->document);
    } else if ((page->document = lexbor.create()) != NULL) {
        lexbor.set_options(page->document, WITHOUT_EVENTS);
    }
    return page->document != NULL;
}

/* What failed has nothing to show, and may have taken all memory. */
static int done(struct page *page, int status) {
    if (status != OK) give_back(page);
    return status;
}

/* links: the kinds of elements whose links are wanted. */
int page_read(struct page *page, const char *html, size_t length, uint32_t links) {
    if (page->is_large) give_back(page);
    if (!has_document(page)) return done(page, NO_MEMORY);
    for (int i = 0; i < PARTS; i++) page->parts[i].length = 0;
    page->count = 0;
    page->block_count = page->body = page->root = 0;
    memset(page->known, 0, sizeof page->known);
    page->hint_count = 0;
    page->has_title = page->no_memory = false;
    if (length > MOST_BYTES) return done(page, NOT_PARSED);
    unsigned status = lexbor.parse(page->document, (const unsigned char *)html, length);
    if (status != 0) return done(page, status == LEXBOR_NO_MEMORY ? NO_MEMORY : NOT_PARSED);
    flatten(page);
    page->is_large = length > LARGE_BYTES || page->count > LARGE_ITEMS;
    for (uint32_t i = 1; i < page->count && !page->no_memory; i++) {
        unsigned kind = page->items[i].kind;
        if (kind & OF_HEAD || i == page->root) read_of_head(page, i);
        if (kind & links) read_link(page, i);
        if (kind & NAMED) ask_hint(page, i);
        if (kind & PARAGRAPH) note_block(page, i);
    }
    for (size_t i = 0; i < page->block_count && !page->no_memory; i++) {
        uint32_t place = page->blocks[i];
        for (int j = 0; j < GENERATIONS && place != 0; j++, place = outside_of(page, place)) ask_hint(page, place);
    }
    return done(page, page->no_memory ? NO_MEMORY : OK);
}

/* hints: for each three fields of NAMES what they say. Once for each page, but for mode ALL, which may go first. */
int page_text(struct page *page, int mode, const signed char *hints) {
    page->parts[TEXT].length = page->parts[LINKED].length = 0;
    page->has_odd_space = page->is_new_line = page->is_space = false;
    if (page->body == 0) return OK;
    if (mode == ALL) {
        put_lines(page, page->body, UNSEEN, 0);
    } else {
        uint32_t block = block_of_paragraphs(page, hints);
        if (block == 0) block = page->body;
        put_linked(page, block);
        page->is_new_line = page->is_space = false;
        drop_named(page, block, hints);
        put_lines(page, block, 0, DROPPED);
    }
    return done(page, page->no_memory ? NO_MEMORY : OK);
}

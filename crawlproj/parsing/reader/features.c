#include "features.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- names ----------------------------------------------------------------------------------------------------- */

#define LONGEST_WORD 24

static bool is_upper(char byte) { return byte >= 'A' && byte <= 'Z'; }

/* Words end where letters end, and where a capital follows a small letter. Digits are no words. */
static void visit_words(slice names, char mark, visit_name *visit, void *context) {
    char word[LONGEST_WORD + 1];
    size_t length = 0;
    for (size_t i = 0; i <= names.length; i++) {
        char byte = i < names.length ? names.at[i] : ' ';
        bool is_part = is_letter(byte) || (unsigned char)byte >= 0x80;
        bool is_new = i > 0 && is_upper(byte) && !is_upper(names.at[i - 1]);
        if ((!is_part || is_new) && length > (mark != 0)) {
            if (length - (mark != 0) > 1) visit(context, word, length);
            length = 0;
        }
        if (!is_part) continue;
        if (length == 0 && mark) word[length++] = mark;
        if (length < LONGEST_WORD) word[length++] = lower(byte);
    }
}

void visit_names(const page *page, uint32_t number, visit_name *visit, void *context) {
    const element *element = element_at(page, number);
    static const char marks[NAME_KINDS] = {0, 0, '@', '=', 0};
    for (int kind = 0; kind < NAME_KINDS; kind++) {
        slice names = element->names[kind];
        if (names.length > 200) names.length = 200;
        if (names.length) visit_words(names, number == 0 ? '^' : marks[kind], visit, context);
    }
}

/* -- the text of a line ------------------------------------------------------------------------------------------ */

typedef struct {
    uint32_t chars, words, digits, uppers, commas, ends;
    bool is_cjk, ends_sentence, ends_colon, begins_small, begins_upper, begins_digit;
    bool has_copyright, has_separator, has_currency, has_at, has_arrow, has_question;
    uint64_t hash;
    float weight; /* characters, those of Chinese, Japanese and Korean doubled */
    bool is_good;
} line_text;

enum { C_SPACE = 1, C_DIGIT, C_UPPER, C_COMMA, C_END, C_OTHER };
static uint8_t byte_classes[256];

static void make_classes(void) {
    for (int i = '0'; i <= '9'; i++) byte_classes[i] = C_DIGIT;
    for (int i = 'A'; i <= 'Z'; i++) byte_classes[i] = C_UPPER;
    byte_classes[' '] = byte_classes['\n'] = byte_classes['\t'] = C_SPACE;
    byte_classes[','] = byte_classes[';'] = C_COMMA;
    byte_classes['.'] = byte_classes['!'] = byte_classes['?'] = C_END;
    byte_classes['|'] = byte_classes['$'] = byte_classes['@'] = C_OTHER;
    byte_classes[0xC2] = byte_classes[0xE2] = C_OTHER; /* where signs of Latin-1 and typography begin */
}

static bool is_at(const unsigned char *at, const unsigned char *end, const char *utf8) {
    size_t length = strlen(utf8);
    return (size_t)(end - at) >= length && memcmp(at, utf8, length) == 0;
}

static void see_sign(line_text *found, const unsigned char *at, const unsigned char *end) {
    if (*at == '|' || is_at(at, end, "\u00b7") || is_at(at, end, "\u2022")) found->has_separator = true;
    else if (*at == '$' || is_at(at, end, "\u20ac") || is_at(at, end, "\u00a3")) found->has_currency = true;
    else if (*at == '@') found->has_at = true;
    else if (is_at(at, end, "\u00a9")) found->has_copyright = true;
    else if (is_at(at, end, "\u00bb") || is_at(at, end, "\u203a") || is_at(at, end, "\u2192")) found->has_arrow = true;
}

static bool ends_sentence(const unsigned char *at, const unsigned char *end) {
    static const char *const marks[] = {"\u2026", "\u3002", "\uff01", "\uff1f", "\u201d", "\u2019", "\u00bb", "\u201c"};
    if (strchr(".!?:;\")", end[-1])) return true;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        size_t length = strlen(marks[i]);
        if ((size_t)(end - at) >= length && memcmp(end - length, marks[i], length) == 0) return true;
    }
    return false;
}

static line_text text_of_line(const page *page, const line *line) {
    const unsigned char *at = (const unsigned char *)text_at(&page->text, line->start), *end = at + line->length;
    line_text found = {0};
    found.ends_sentence = ends_sentence(at, end);
    found.ends_colon = end[-1] == ':';
    found.begins_upper = byte_classes[*at] == C_UPPER;
    found.begins_small = *at >= 'a' && *at <= 'z';
    found.begins_digit = byte_classes[*at] == C_DIGIT;
    uint32_t wide = 0, spaces = 0;
    uint64_t hash = 14695981039346656037u;
    for (const unsigned char *byte = at; byte < end; byte++) {
        hash = (hash ^ *byte) * UINT64_C(1099511628211);
        found.chars += (*byte & 0xC0) != 0x80;
        switch (byte_classes[*byte]) {
        case 0: wide += *byte >= 0xE3 && *byte <= 0xED; break;
        case C_SPACE: spaces++; break;
        case C_DIGIT: found.digits++; break;
        case C_UPPER: found.uppers++; break;
        case C_COMMA: found.commas++; break;
        case C_END: found.ends++, found.has_question |= *byte == '?'; break;
        default: see_sign(&found, byte, end);
        }
    }
    found.hash = hash;
    found.words = spaces + 1;
    found.is_cjk = wide * 2 > found.chars;
    found.weight = (float)found.chars * (found.is_cjk ? 2.0f : 1.0f);
    found.is_good = found.weight >= 60 && line->linked_bytes * 3 < line->length;
    return found;
}

/* -- the page ---------------------------------------------------------------------------------------------------- */

/* What is inside of an element. */
typedef struct {
    float weight, linked, good, paragraph;
    uint32_t lines, siblings;
    uint32_t inside; /* bits of the elements around a line of it */
} contents;

/* The elements that a line can be in. */
static const uint8_t inside_tags[] = {
    TAG_article, TAG_main,   TAG_aside,      TAG_nav,     TAG_footer,  TAG_header, TAG_form,   TAG_table, TAG_ul,
    TAG_ol,      TAG_dl,     TAG_figure,     TAG_details, TAG_section, TAG_button, TAG_select, TAG_address,
    TAG_dialog,  TAG_object, TAG_blockquote, TAG_pre,     TAG_label,   TAG_menu,
};
#define INSIDE_COUNT (sizeof inside_tags)

static const uint8_t owner_tags[] = {
    TAG_p,  TAG_li, TAG_h1,         TAG_h2, TAG_h3,     TAG_h4, TAG_td,  TAG_th,      TAG_div,     TAG_pre,
    TAG_dt, TAG_dd, TAG_figcaption, TAG_option, TAG_button, TAG_summary, TAG_section, TAG_article, TAG_legend, TAG_body,
};
#define OWNER_COUNT (sizeof owner_tags)

static uint8_t inside_bits[TAG_COUNT], owner_places[TAG_COUNT];

static void make_tables(void) {
    static bool is_done;
    if (is_done) return;
    make_classes();
    for (size_t i = 0; i < INSIDE_COUNT; i++) inside_bits[inside_tags[i]] = (uint8_t)(i + 1);
    for (size_t i = 0; i < OWNER_COUNT; i++) owner_places[owner_tags[i]] = (uint8_t)(i + 1);
    owner_places[TAG_h5] = owner_places[TAG_h6] = owner_places[TAG_h4];
    is_done = true;
}

typedef struct {
    const page *page;
    uint32_t line_count, element_count;
    line_text *texts;
    contents *contents;
    uint32_t *places; /* a table of hashes */
    uint32_t place_mask;
    uint32_t heart, paragraph_heart, first_heading, title_line;
    float all_weight, all_good, all_linked;
} survey;

static uint32_t room_for(uint32_t count) {
    uint32_t room = 64;
    while (room < 2 * count) room *= 2;
    return room;
}

static bool start_survey(survey *s, const page *page) {
    uint32_t lines = (uint32_t)page->lines.count, elements = (uint32_t)page->elements.count;
    uint32_t places = room_for(lines > elements ? lines : elements);
    *s = (survey){.page = page, .line_count = lines, .element_count = elements, .place_mask = places - 1};
    s->texts = malloc((lines + 1) * sizeof *s->texts);
    s->contents = calloc(elements, sizeof *s->contents);
    s->places = malloc(places * sizeof *s->places);
    if (s->texts && s->contents && s->places) return true;
    no_memory = true;
    return false;
}

static void end_survey(survey *s) {
    free(s->texts);
    free(s->contents);
    free(s->places);
}

static void sum_up(survey *s) {
    const page *page = s->page;
    for (uint32_t i = 0; i < s->line_count; i++) {
        const line *line = line_at(page, i);
        line_text *text = &s->texts[i];
        *text = text_of_line(page, line);
        contents *owner = &s->contents[line->owner];
        float linked = text->weight * (float)line->linked_bytes / (float)line->length;
        owner->weight += text->weight;
        owner->linked += linked;
        owner->lines++;
        if (text->is_good && !(line->state & IS_HIDDEN)) {
            owner->good += text->weight - linked;
            if (element_at(page, line->owner)->tag == TAG_p) owner->paragraph += text->weight - linked;
        }
    }
    for (uint32_t i = s->element_count - 1; i > 0; i--) {
        contents *inner = &s->contents[i], *outer = &s->contents[element_at(page, i)->parent];
        outer->weight += inner->weight;
        outer->linked += inner->linked;
        outer->good += inner->good;
        outer->paragraph += inner->paragraph;
        outer->lines += inner->lines;
    }
    for (uint32_t i = 0; i < s->element_count; i++) {
        uint32_t bit = inside_bits[element_at(page, i)->tag];
        s->contents[i].inside = (i ? s->contents[element_at(page, i)->parent].inside : 0) | (bit ? 1u << (bit - 1) : 0);
    }
    s->all_weight = s->contents[0].weight + 1;
    s->all_good = s->contents[0].good + 1;
    s->all_linked = s->contents[0].linked;
}

/* How many elements of the same kind have the same parent. */
static void count_siblings(survey *s) {
    memset(s->places, 0xFF, (s->place_mask + 1) * sizeof *s->places);
    uint32_t *first = malloc(s->element_count * sizeof *first);
    if (first == NULL) {
        no_memory = true;
        return;
    }
    for (uint32_t i = 1; i < s->element_count; i++) {
        const element *one = element_at(s->page, i);
        uint64_t hash = (one->hash ^ one->parent) * UINT64_C(0x9E3779B97F4A7C15);
        uint32_t place = (uint32_t)(hash >> 32) & s->place_mask;
        for (; s->places[place] != UINT32_MAX; place = (place + 1) & s->place_mask) {
            const element *other = element_at(s->page, s->places[place]);
            if (other->hash == one->hash && other->parent == one->parent) break;
        }
        if (s->places[place] == UINT32_MAX) s->places[place] = i;
        first[i] = s->places[place];
        s->contents[first[i]].siblings++;
    }
    for (uint32_t i = 1; i < s->element_count; i++) s->contents[i].siblings = s->contents[first[i]].siblings;
    free(first);
}

/* Down from the body as long as one element has most of what counts. */
static uint32_t find_heart(const survey *s, bool is_by_paragraphs) {
    uint32_t heart = 0;
    for (uint32_t i = 1; i < s->element_count; i++) {
        const contents *outer = &s->contents[heart], *inner = &s->contents[i];
        if (element_at(s->page, i)->first_line >= element_at(s->page, heart)->end_line) break;
        bool is_most = is_by_paragraphs ? inner->paragraph > 0.6f * outer->paragraph : inner->good > 0.6f * outer->good;
        if (is_most && inner->lines > 2) heart = i;
    }
    return heart;
}

/* Marks lines whose text another one has, too, by the sign of words. */
static void find_repeated(survey *s, bool *repeated) {
    memset(s->places, 0xFF, (s->place_mask + 1) * sizeof *s->places);
    for (uint32_t i = 0; i < s->line_count; i++) {
        uint32_t place = (uint32_t)(s->texts[i].hash >> 20) & s->place_mask;
        while (s->places[place] != UINT32_MAX && s->texts[s->places[place]].hash != s->texts[i].hash)
            place = (place + 1) & s->place_mask;
        repeated[i] = s->places[place] != UINT32_MAX;
        if (repeated[i]) repeated[s->places[place]] = true;
        else s->places[place] = i;
    }
}

/* How many of the first letters and digits of a line are those of the page's title. */
static bool is_title(const page *page, const line *line) {
    const char *text = text_at(&page->text, line->start), *title = page->title.at;
    size_t matched = 0, i = 0, j = 0;
    while (j < page->title.length && is_space(title[j])) j++;
    while (i < line->length && j < page->title.length && lower(text[i]) == lower(title[j])) i++, j++, matched++;
    return matched >= 12 || (matched >= 4 && matched == line->length);
}

static float ratio(float part, float whole) { return whole > 0 ? part / whole : 0; }
static float up_to(float number, float most) { return (number > most ? most : number) / most; }
static float bit(bool is_it) { return is_it ? 1.0f : 0.0f; }
static float log_of(float number) { return logf(1 + number) / 8; }

static float *put_own(float *f, const line *line, const line_text *text) {
    float chars = (float)text->chars, linked = ratio((float)line->linked_bytes, (float)line->length);
    *f++ = log_of(text->weight);
    *f++ = up_to(text->weight, 300);
    *f++ = bit(text->weight < 25);
    *f++ = bit(text->weight > 80);
    *f++ = linked;
    *f++ = bit(linked > 0.8f);
    *f++ = up_to(line->links, 5);
    *f++ = ratio((float)text->digits, chars);
    *f++ = ratio((float)text->uppers, chars);
    *f++ = up_to((float)text->commas, 6);
    *f++ = up_to((float)text->ends, 6);
    *f++ = up_to(chars / (float)text->words, 12);
    *f++ = ratio((float)line->bold_bytes, (float)line->length);
    *f++ = bit(text->ends_sentence);
    *f++ = bit(text->ends_colon);
    *f++ = bit(text->begins_small);
    *f++ = bit(text->begins_upper);
    *f++ = bit(text->begins_digit);
    *f++ = bit(text->is_cjk);
    *f++ = bit(text->has_copyright);
    *f++ = bit(text->has_separator);
    *f++ = bit(text->has_currency);
    *f++ = bit(text->has_at);
    *f++ = bit(text->has_arrow);
    *f++ = bit(text->has_question);
    *f++ = bit(line->follows_break);
    *f++ = bit(line->state & IS_HIDDEN);
    *f++ = bit(line->state & IS_ARIA_HIDDEN);
    return f;
}

static float *put_place(float *f, const survey *s, uint32_t number, float before) {
    const line *line = line_at(s->page, number);
    *f++ = up_to(element_at(s->page, line->owner)->depth, 30);
    *f++ = ratio((float)number, (float)s->line_count);
    *f++ = before / s->all_weight;
    *f++ = bit(number < s->first_heading);
    float distance = (float)number - (float)s->first_heading;
    *f++ = distance >= 0 ? up_to(distance, 60) : 0;
    *f++ = up_to((float)number, 20);
    *f++ = up_to((float)(s->line_count - number), 20);
    return f;
}

static float *put_heart(float *f, const survey *s, uint32_t number, uint32_t heart) {
    const element *core = element_at(s->page, heart);
    bool is_before = number < core->first_line, is_after = number >= core->end_line;
    *f++ = bit(!is_before && !is_after);
    *f++ = is_before ? log_of((float)(core->first_line - number)) : 0;
    *f++ = is_after ? log_of((float)(number - core->end_line + 1)) : 0;
    return f;
}

/* The elements around a line, from the innermost on. */
static float *put_around(float *f, const survey *s, uint32_t number) {
    uint32_t at = line_at(s->page, number)->owner;
    for (int level = 0; level < 4; level++) {
        const contents *c = &s->contents[at];
        *f++ = ratio(c->good, s->all_good);
        *f++ = ratio(c->linked, c->weight);
        *f++ = log_of(ratio(c->weight, (float)c->lines));
        if (level < 3) *f++ = log_of((float)c->siblings);
        /* An element that holds nothing more says nothing new. */
        uint32_t lines = c->lines;
        while (at && s->contents[at].lines == lines) at = element_at(s->page, at)->parent;
    }
    return f;
}

static void put_line(float *f, const survey *s, uint32_t number, float before, bool is_repeated) {
    const float *end = f + LINE_FEATURES;
    const line *line = line_at(s->page, number);
    f = put_own(f, line, &s->texts[number]);
    *f++ = bit(is_repeated);
    *f++ = bit(number == s->title_line);
    f = put_place(f, s, number, before);
    f = put_heart(f, s, number, s->heart);
    f = put_heart(f, s, number, s->paragraph_heart);
    f = put_around(f, s, number);
    uint8_t owner = owner_places[element_at(s->page, line->owner)->tag];
    if (owner) f[owner - 1] = 1;
    f += OWNER_COUNT;
    uint32_t inside = s->contents[line->owner].inside;
    for (size_t i = 0; i < INSIDE_COUNT; i++) f[i] = bit(inside >> i & 1);
    f += INSIDE_COUNT;
    if (f > end) abort(); /* LINE_FEATURES is too small: seen by every test */
}

static void put_page(float *f, const survey *s) {
    const page *page = s->page;
    uint32_t kinds[6] = {0}, good = 0;
    for (uint32_t i = 0; i < s->element_count; i++) {
        enum tag tag = (enum tag)element_at(page, i)->tag;
        kinds[0] += tag == TAG_article;
        kinds[1] += tag == TAG_main;
        kinds[2] += tag == TAG_p;
        kinds[3] += tag == TAG_li;
        kinds[4] += tag == TAG_tr;
        kinds[5] += (tag_flags[tag] & IS_HEADING) != 0;
    }
    for (uint32_t i = 0; i < s->line_count; i++) good += s->texts[i].is_good;
    *f++ = log_of((float)s->line_count);
    *f++ = log_of(s->all_weight);
    *f++ = s->all_linked / s->all_weight;
    *f++ = s->all_good / s->all_weight;
    *f++ = log_of((float)good);
    for (int i = 0; i < 6; i++) *f++ = log_of((float)kinds[i]);
    *f++ = ratio(s->contents[s->heart].good, s->all_good);
    *f++ = ratio(s->contents[0].paragraph, s->all_good);
    *f++ = bit(s->first_heading < s->line_count);
}

static void find_landmarks(survey *s) {
    s->heart = find_heart(s, false);
    s->paragraph_heart = find_heart(s, true);
    s->first_heading = s->title_line = s->line_count;
    for (uint32_t i = 0; i < s->line_count; i++) {
        const line *line = line_at(s->page, i);
        bool is_heading = tag_flags[element_at(s->page, line->owner)->tag] & IS_HEADING;
        if (is_heading && s->title_line == s->line_count && is_title(s->page, line)) s->title_line = i;
        if (s->first_heading == s->line_count && element_at(s->page, line->owner)->tag == TAG_h1) s->first_heading = i;
    }
    if (s->title_line < s->line_count) s->first_heading = s->title_line;
}

void find_features(const page *page, features *found) {
    make_tables();
    found->of_lines.count = 0;
    memset(found->of_page, 0, sizeof found->of_page);
    survey s;
    bool *repeated = calloc(page->lines.count + 1, 1);
    float *all = add_items(&found->of_lines, page->lines.count, LINE_FEATURES * sizeof(float));
    if (repeated == NULL) no_memory = true;
    if (start_survey(&s, page) && repeated && all) {
        memset(all, 0, page->lines.count * LINE_FEATURES * sizeof(float));
        sum_up(&s);
        count_siblings(&s);
        find_landmarks(&s);
        find_repeated(&s, repeated);
        put_page(found->of_page, &s);
        float before = 0;
        for (uint32_t i = 0; i < s.line_count; i++) {
            put_line(all + (size_t)i * LINE_FEATURES, &s, i, before, repeated[i]);
            before += s.texts[i].weight;
        }
    }
    end_survey(&s);
    free(repeated);
}

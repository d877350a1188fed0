#include "features.h"

#include <math.h>
#include <string.h>

#include "survey.h"

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

/* -- features -------------------------------------------------------------------------------------------------- */

#define OWN_FEATURES 30
#define PLACE_FEATURES 7
#define HEART_FEATURES 3
#define LEVELS 4
#define LEVEL_FEATURES 4
#define AROUND_FEATURES (LEVELS * LEVEL_FEATURES - 1)
/* The elements that lines are of; numbers from 1 on. */
#define OWNER_FEATURES 20
static const uint8_t owner_places[TAG_COUNT] = {
    [TAG_p] = 1, [TAG_li] = 2, [TAG_h1] = 3, [TAG_h2] = 4, [TAG_h3] = 5, [TAG_h4] = 6, [TAG_td] = 7, [TAG_th] = 8,
    [TAG_div] = 9, [TAG_pre] = 10, [TAG_dt] = 11, [TAG_dd] = 12, [TAG_figcaption] = 13, [TAG_option] = 14,
    [TAG_button] = 15, [TAG_summary] = 16, [TAG_section] = 17, [TAG_article] = 18, [TAG_legend] = 19,
    [TAG_body] = 20, [TAG_h5] = 6, [TAG_h6] = 6,
};

_Static_assert(OWN_FEATURES + PLACE_FEATURES + 2 * HEART_FEATURES + AROUND_FEATURES + OWNER_FEATURES + INSIDE_FEATURES <=
                   LINE_FEATURES,
               "LINE_FEATURES is too small");

/* Puts an array of values, which must be as many as the count says. */
#define PUT(f, values, count) \
    _Static_assert(sizeof(values) == (count) * sizeof(float), "a feature is not counted"); \
    memcpy(f, values, sizeof(values))

static float ratio(float part, float whole) { return whole > 0 ? part / whole : 0; }
static float up_to(float number, float most) { return (number > most ? most : number) / most; }
static float bit(bool is_it) { return is_it ? 1.0f : 0.0f; }
static float log_of(float number) { return logf(1 + number) / 8; }

static float *put_own(float *f, const survey *s, uint32_t number) {
    const line *line = line_at(s->page, number);
    const line_text *text = &s->texts[number];
    float chars = (float)text->chars, linked = ratio((float)line->linked_bytes, (float)line->length);
    const float values[] = {
        log_of(text->weight),
        up_to(text->weight, 300),
        bit(text->weight < 25),
        bit(text->weight > 80),
        linked,
        bit(linked > 0.8f),
        up_to(line->links, 5),
        ratio((float)text->digits, chars),
        ratio((float)text->uppers, chars),
        up_to((float)text->commas, 6),
        up_to((float)text->ends, 6),
        up_to(chars / (float)text->words, 12),
        ratio((float)line->bold_bytes, (float)line->length),
        bit(text->ends_sentence),
        bit(text->ends_colon),
        bit(text->begins_small),
        bit(text->begins_upper),
        bit(text->begins_digit),
        bit(text->is_cjk),
        bit(text->has_copyright),
        bit(text->has_separator),
        bit(text->has_currency),
        bit(text->has_at),
        bit(text->has_arrow),
        bit(text->has_question),
        bit(line->follows_break),
        bit(line->state & IS_HIDDEN),
        bit(line->state & IS_ARIA_HIDDEN),
        bit(s->repeated[number]),
        bit(number == s->title_line),
    };
    PUT(f, values, OWN_FEATURES);
    return f + OWN_FEATURES;
}

static float *put_place(float *f, const survey *s, uint32_t number, float before) {
    const line *line = line_at(s->page, number);
    const float values[] = {
        up_to(element_at(s->page, line->owner)->depth, 30),
        ratio((float)number, (float)s->line_count),
        before / s->all_weight,
        bit(number < s->first_heading),
        number >= s->first_heading ? up_to((float)(number - s->first_heading), 60) : 0,
        up_to((float)number, 20),
        up_to((float)(s->line_count - number), 20),
    };
    PUT(f, values, PLACE_FEATURES);
    return f + PLACE_FEATURES;
}

static float *put_heart(float *f, const survey *s, uint32_t number, uint32_t heart) {
    const element *core = element_at(s->page, heart);
    bool is_before = number < core->first_line, is_after = number >= core->end_line;
    const float values[] = {
        bit(!is_before && !is_after),
        is_before ? log_of((float)(core->first_line - number)) : 0,
        is_after ? log_of((float)(number - core->end_line + 1)) : 0,
    };
    PUT(f, values, HEART_FEATURES);
    return f + HEART_FEATURES;
}

/* The elements around a line, from the innermost on. One that holds no more lines says nothing new. */
static float *put_around(float *f, const survey *s, uint32_t number) {
    uint32_t at = line_at(s->page, number)->owner;
    for (int level = 0; level < LEVELS; level++, at = s->contents[at].wider) {
        const contents *c = &s->contents[at];
        *f++ = ratio(c->good, s->all_good);
        *f++ = ratio(c->linked, c->weight);
        *f++ = log_of(ratio(c->weight, (float)c->lines));
        if (level < LEVELS - 1) *f++ = log_of((float)c->siblings);
    }
    return f;
}

static void put_line(float *f, const survey *s, uint32_t number, float before) {
    const line *line = line_at(s->page, number);
    f = put_own(f, s, number);
    f = put_place(f, s, number, before);
    f = put_heart(f, s, number, s->heart);
    f = put_heart(f, s, number, s->paragraph_heart);
    f = put_around(f, s, number);
    uint8_t owner = owner_places[element_at(s->page, line->owner)->tag];
    if (owner) f[owner - 1] = 1;
    f += OWNER_FEATURES;
    uint32_t inside = s->contents[line->owner].inside;
    for (int i = 0; i < INSIDE_FEATURES; i++) f[i] = bit(inside >> i & 1);
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
    const float values[] = {
        log_of((float)s->line_count),
        log_of(s->all_weight),
        s->all_linked / s->all_weight,
        s->all_good / s->all_weight,
        log_of((float)good),
        log_of((float)kinds[0]),
        log_of((float)kinds[1]),
        log_of((float)kinds[2]),
        log_of((float)kinds[3]),
        log_of((float)kinds[4]),
        log_of((float)kinds[5]),
        ratio(s->contents[s->heart].good, s->all_good),
        ratio(s->contents[0].paragraph, s->all_good),
        bit(s->first_heading < s->line_count),
    };
    _Static_assert(sizeof values <= PAGE_FEATURES * sizeof(float), "PAGE_FEATURES is too small");
    memcpy(f, values, sizeof values);
}

void find_features(const page *page, features *found) {
    survey s;
    found->of_lines.count = 0;
    memset(found->of_page, 0, sizeof found->of_page);
    float *all = add_items(&found->of_lines, page->lines.count, LINE_FEATURES * sizeof(float));
    if (make_survey(&s, page) && all) {
        memset(all, 0, page->lines.count * LINE_FEATURES * sizeof(float));
        put_page(found->of_page, &s);
        float before = 0;
        for (uint32_t i = 0; i < s.line_count; i++) {
            put_line(all + (size_t)i * LINE_FEATURES, &s, i, before);
            before += s.texts[i].weight;
        }
    }
    end_survey(&s);
}

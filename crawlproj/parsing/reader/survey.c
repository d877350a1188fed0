#include "survey.h"

#include <stdlib.h>
#include <string.h>

/* -- the text of a line ------------------------------------------------------------------------------------------ */

/* Counters of eight bits in one number, so that a byte is counted by one addition. */
#define COUNTER(place) (UINT64_C(1) << (8 * (place)))
enum { INNER_BYTES, WIDE, SPACES, DIGITS, UPPERS, COMMAS, ENDS, SIGNS, COUNTERS };
static uint64_t counted_as[256];

static void count_as(const char *bytes, int counter) {
    for (; *bytes; bytes++) counted_as[(unsigned char)*bytes] = COUNTER(counter);
}

void make_counters(void) {
    count_as(" \n\t", SPACES);
    count_as("0123456789", DIGITS);
    count_as("ABCDEFGHIJKLMNOPQRSTUVWXYZ", UPPERS);
    count_as(",;", COMMAS);
    count_as(".!?", ENDS);
    count_as("|$@\xC2\xE2", SIGNS); /* the last two begin signs of Latin-1 and typography */
    for (int byte = 0x80; byte < 0xC0; byte++) counted_as[byte] = COUNTER(INNER_BYTES);
    for (int byte = 0xE3; byte <= 0xED; byte++) counted_as[byte] = COUNTER(WIDE);
}

static bool is_counted_as(unsigned char byte, int counter) { return counted_as[byte] == COUNTER(counter); }

static void count_bytes(const unsigned char *at, const unsigned char *end, uint32_t *counts) {
    while (at < end) {
        /* As many as a counter can hold. */
        const unsigned char *pause = end - at > 255 ? at + 255 : end;
        uint64_t counters = 0;
        while (at < pause) counters += counted_as[*at++];
        for (int i = 0; i < COUNTERS; i++) counts[i] += counters >> (8 * i) & 0xFF;
    }
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
    found.begins_upper = is_counted_as(*at, UPPERS);
    found.begins_small = *at >= 'a' && *at <= 'z';
    found.begins_digit = is_counted_as(*at, DIGITS);
    uint32_t counts[COUNTERS] = {0};
    count_bytes(at, end, counts);
    found.chars = line->length - counts[INNER_BYTES];
    found.digits = counts[DIGITS];
    found.uppers = counts[UPPERS];
    found.commas = counts[COMMAS];
    found.ends = counts[ENDS];
    found.has_question = found.ends && memchr(at, '?', line->length);
    for (const unsigned char *byte = at; counts[SIGNS] && byte < end; byte++)
        if (is_counted_as(*byte, SIGNS)) see_sign(&found, byte, end);
    found.hash = hash_bytes((const char *)at, line->length, 0);
    found.words = counts[SPACES] + 1;
    found.is_cjk = counts[WIDE] * 2 > found.chars;
    found.weight = (float)found.chars * (found.is_cjk ? 2.0f : 1.0f);
    found.is_good = found.weight >= 60 && line->linked_bytes * 3 < line->length;
    return found;
}

/* -- the page ---------------------------------------------------------------------------------------------------- */

/* The elements that a line can be in; numbers from 1 on. */
static const uint8_t inside_places[TAG_COUNT] = {
    [TAG_article] = 1, [TAG_main] = 2, [TAG_aside] = 3, [TAG_nav] = 4, [TAG_footer] = 5, [TAG_header] = 6,
    [TAG_form] = 7, [TAG_table] = 8, [TAG_ul] = 9, [TAG_ol] = 10, [TAG_dl] = 11, [TAG_figure] = 12,
    [TAG_details] = 13, [TAG_section] = 14, [TAG_button] = 15, [TAG_select] = 16, [TAG_address] = 17,
    [TAG_dialog] = 18, [TAG_object] = 19, [TAG_blockquote] = 20, [TAG_pre] = 21, [TAG_label] = 22, [TAG_menu] = 23,
};

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
    s->repeated = calloc(lines + 1, sizeof *s->repeated);
    s->contents = calloc(elements, sizeof *s->contents);
    s->places = malloc(places * sizeof *s->places);
    return s->texts && s->repeated && s->contents && s->places;
}

void end_survey(survey *s) {
    free(s->texts);
    free(s->repeated);
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
        uint32_t place = inside_places[element_at(page, i)->tag], parent = element_at(page, i)->parent;
        contents *inner = &s->contents[i], *outer = &s->contents[parent]; /* of the body, itself */
        inner->inside = outer->inside | (place ? 1u << (place - 1) : 0);
        inner->wider = inner->lines == outer->lines ? outer->wider : parent;
    }
    s->all_weight = s->contents[0].weight + 1;
    s->all_good = s->contents[0].good + 1;
    s->all_linked = s->contents[0].linked;
}

/* Two tables of hashes are made, one after the other. A page made for it could have all its hashes at one place;
 * what is not found or has no place after so many steps counts as different from all others. */
#define MOST_STEPS 64

static void empty_places(survey *s) { memset(s->places, 0xFF, ((size_t)s->place_mask + 1) * sizeof *s->places); }

static uint32_t first_sibling(survey *s, uint32_t number) {
    const element *one = element_at(s->page, number);
    uint64_t hash = (one->hash ^ one->parent) * UINT64_C(0x9E3779B97F4A7C15);
    for (uint32_t step = 0; step < MOST_STEPS; step++) {
        uint32_t *place = &s->places[((uint32_t)(hash >> 32) + step) & s->place_mask];
        if (*place == UINT32_MAX) return *place = number;
        const element *other = element_at(s->page, *place);
        if (other->hash == one->hash && other->parent == one->parent) return *place;
    }
    return number;
}

/* How many elements of the same kind have the same parent. */
static void count_siblings(survey *s) {
    empty_places(s);
    for (uint32_t i = 1; i < s->element_count; i++) {
        uint32_t first = first_sibling(s, i);
        s->contents[first].siblings++;
        s->contents[i].first_sibling = first;
    }
    for (uint32_t i = 1; i < s->element_count; i++)
        s->contents[i].siblings = s->contents[s->contents[i].first_sibling].siblings;
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

static void find_repeated(survey *s) {
    empty_places(s);
    for (uint32_t i = 0; i < s->line_count; i++) {
        uint64_t hash = s->texts[i].hash;
        for (uint32_t step = 0; step < MOST_STEPS; step++) {
            uint32_t *place = &s->places[((uint32_t)(hash >> 20) + step) & s->place_mask];
            if (*place == UINT32_MAX) {
                *place = i;
                break;
            }
            if (s->texts[*place].hash == hash) {
                s->repeated[i] = s->repeated[*place] = true;
                break;
            }
        }
    }
}

/* Whether the line begins as the page's title does. */
static bool is_title(const page *page, const line *line) {
    const char *text = text_at(&page->text, line->start), *title = page->title.at;
    size_t matched = 0, i = 0, j = 0;
    while (j < page->title.length && is_space(title[j])) j++;
    while (i < line->length && j < page->title.length && lower(text[i]) == lower(title[j])) i++, j++, matched++;
    return matched >= 12 || (matched >= 4 && matched == line->length);
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

bool make_survey(survey *s, const page *page) {
    if (!start_survey(s, page)) {
        no_memory = true;
        return false;
    }
    sum_up(s);
    count_siblings(s);
    find_landmarks(s);
    find_repeated(s);
    return true;
}

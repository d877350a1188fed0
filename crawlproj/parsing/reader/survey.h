/* What a page consists of: numbers about its lines and elements that features are made of. */
#ifndef CRAWLPROJ_SURVEY_H
#define CRAWLPROJ_SURVEY_H

#include "page.h"

#define INSIDE_FEATURES 23 /* kinds of elements that a line can be in */

/* The text of a line. */
typedef struct {
    uint32_t chars, words, digits, uppers, commas, ends;
    bool is_cjk, ends_sentence, ends_colon, begins_small, begins_upper, begins_digit;
    bool has_copyright, has_separator, has_currency, has_at, has_arrow, has_question;
    uint64_t hash;
    float weight; /* characters, those of Chinese, Japanese and Korean doubled */
    bool is_good;
} line_text;

/* What is inside of an element. */
typedef struct {
    float weight, linked, good, paragraph;
    uint32_t lines, siblings, first_sibling;
    uint32_t wider; /* the innermost element around it that has more lines */
    uint32_t inside; /* bits of those kinds */
} contents;

typedef struct {
    const page *page;
    uint32_t line_count, element_count;
    line_text *texts;
    contents *contents;
    bool *repeated;  /* lines whose text is that of another one */
    uint32_t *places; /* a table of hashes */
    uint32_t place_mask;
    uint32_t heart, paragraph_heart, first_heading, title_line;
    float all_weight, all_good, all_linked;
} survey;

/* Once, before anything else. */
void make_counters(void);

/* False without memory. To be ended in any case. */
bool make_survey(survey *survey, const page *page);
void end_survey(survey *survey);

#endif

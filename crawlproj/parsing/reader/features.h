/* What is known of a line when it is judged: numbers, and the names that people gave to what is around it. */
#ifndef CRAWLPROJ_FEATURES_H
#define CRAWLPROJ_FEATURES_H

#include "page.h"

#define LINE_FEATURES 104
#define PAGE_FEATURES 16

/* A name counts less for a line the further out it stands: so much less for each named element in between. */
#define NAME_DECAY 0.8f

typedef struct {
    float of_page[PAGE_FEATURES];
    buffer of_lines; /* float[LINE_FEATURES] each */
} features;

void find_features(const page *page, features *found);

static inline const float *features_of_line(const features *features, size_t line) {
    return (const float *)features->of_lines.items + line * LINE_FEATURES;
}
/* What a line counts for in the mean of a page: its length, up to a limit. */
static inline float share_of_line(const features *features, size_t line) {
    return features_of_line(features, line)[1] + 0.003f;
}

static inline bool is_named(const element *element) {
    for (int kind = 0; kind < NAME_KINDS; kind++)
        if (element->names[kind].length) return true;
    return false;
}

/* Calls visit with each word of the names of an element: lower case, a mark in front for what is not a class or id. */
typedef void visit_name(void *context, const char *word, size_t length);
void visit_names(const page *page, uint32_t element, visit_name *visit, void *context);

#endif

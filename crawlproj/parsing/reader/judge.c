/* The network that benchmarks/train_text.py trains, which also says how it is made.
 *
 * Sums are made in the order of the code, so that every machine comes to the same verdict.
 */
#include "judge.h"

#include <stdlib.h>
#include <string.h>

#include "weights.h"

/* -- names ----------------------------------------------------------------------------------------------------- */

#define NAME_PLACES 16384
_Static_assert(NAME_COUNT * 3 < NAME_PLACES, "too many names for their table");
static uint16_t places[NAME_PLACES]; /* numbers of names, from 1 on */

void make_names(void) {
    memset(places, 0, sizeof places);
    for (unsigned i = 0; i < NAME_COUNT; i++) {
        uint32_t place = name_hash(known_names[i], strlen(known_names[i])) % NAME_PLACES;
        while (places[place]) place = (place + 1) % NAME_PLACES;
        places[place] = (uint16_t)(i + 1);
    }
}

static inline void add(float *sum, const float *values, float factor, int count) {
    for (int i = 0; i < count; i++) sum[i] += values[i] * factor;
}

static void add_name(void *context, const char *word, size_t length) {
    for (uint32_t place = name_hash(word, length) % NAME_PLACES; places[place]; place = (place + 1) % NAME_PLACES) {
        const char *known = known_names[places[place] - 1];
        if (strncmp(known, word, length) == 0 && known[length] == 0) {
            add(context, name_weights[places[place] - 1], 1, HIDDEN);
            return;
        }
    }
}

/* Names met before on this page: most of it has the same few. */
#define SEEN 256
typedef struct {
    slice names[NAME_KINDS];
    float sum[HIDDEN];
} seen_names;

static bool are_same(const slice *one, const slice *other) {
    for (int i = 0; i < NAME_KINDS; i++)
        if (one[i].length != other[i].length || (one[i].length && memcmp(one[i].at, other[i].at, one[i].length) != 0))
            return false;
    return true;
}

static const float *sum_of_names(const page *page, uint32_t number, seen_names *seen) {
    const element *element = element_at(page, number);
    seen_names *place = &seen[(element->hash ^ element->names[ID_NAMES].length) % SEEN];
    if (!are_same(place->names, element->names)) {
        memcpy(place->names, element->names, sizeof place->names);
        memset(place->sum, 0, sizeof place->sum);
        visit_names(page, number, add_name, place->sum);
    }
    return place->sum;
}

/* For each element the sum of the names around its lines; those without names share that of their parent. */
typedef struct {
    uint32_t *numbers;
    float (*sums)[HIDDEN];
} name_sums;

static bool sum_names(const page *page, name_sums *found) {
    uint32_t count = (uint32_t)page->elements.count, used = 1;
    seen_names *seen = calloc(SEEN, sizeof *seen);
    found->numbers = malloc(count * sizeof *found->numbers);
    found->sums = malloc(count * sizeof *found->sums);
    if (seen == NULL || found->numbers == NULL || found->sums == NULL) {
        free(seen);
        return false;
    }
    memset(found->sums[0], 0, sizeof *found->sums);
    visit_names(page, 0, add_name, found->sums[0]);
    found->numbers[0] = 0;
    for (uint32_t i = 1; i < count; i++) {
        const element *element = element_at(page, i);
        found->numbers[i] = found->numbers[element->parent];
        if (element->first_line == element->end_line || !is_named(element)) continue;
        float *sum = found->sums[used];
        memcpy(sum, sum_of_names(page, i, seen), sizeof *found->sums);
        add(sum, found->sums[found->numbers[element->parent]], NAME_DECAY, HIDDEN);
        found->numbers[i] = used++;
    }
    free(seen);
    return true;
}

/* -- the network ------------------------------------------------------------------------------------------------- */

static inline void rectify(float *values, int count) {
    for (int i = 0; i < count; i++)
        if (values[i] < 0) values[i] = 0;
}

/* Most inputs are zero. */
static inline void add_layer(float *sum, const float *inputs, int input_count, const float *weights, int count) {
    for (int i = 0; i < input_count; i++)
        if (inputs[i] != 0) add(sum, weights + (size_t)i * (size_t)count, inputs[i], count);
}

static void judge_page(const page *page, const features *features, float (*hidden)[HIDDEN], float *found) {
    float summary[PAGE_FEATURES + 2 * HIDDEN] = {0}, of_page[OF_PAGE], all = 0;
    size_t count = page->lines.count;
    memcpy(summary, features->of_page, sizeof features->of_page);
    for (size_t i = 0; i < count; i++) all += share_of_line(features, i);
    for (size_t i = 0; i < count; i++) {
        add(summary + PAGE_FEATURES, hidden[i], share_of_line(features, i) / all, HIDDEN);
        add(summary + PAGE_FEATURES + HIDDEN, hidden[i], 1.0f / (float)count, HIDDEN);
    }
    memcpy(of_page, page_bias, sizeof of_page);
    add_layer(of_page, summary, PAGE_FEATURES + 2 * HIDDEN, *page_weights, OF_PAGE);
    rectify(of_page, OF_PAGE);
    memcpy(found, context_bias, CONTEXT * sizeof *found);
    add_layer(found, of_page, OF_PAGE, *context_of_page, CONTEXT);
}

/* Wider instructions where there are any: the sums are the same. */
#if defined(__x86_64__) && defined(__gnu_linux__)
__attribute__((target_clones("avx2", "default")))
#endif
static void judge_all(const page *page, const features *features, const name_sums *names, float (*hidden)[HIDDEN],
                      float *verdicts) {
    size_t count = page->lines.count;
    for (size_t i = 0; i < count; i++) {
        memcpy(hidden[i], line_bias, sizeof *hidden);
        add(hidden[i], names->sums[names->numbers[line_at(page, i)->owner]], 1, HIDDEN);
        add_layer(hidden[i], features_of_line(features, i), LINE_FEATURES, *line_weights, HIDDEN);
        rectify(hidden[i], HIDDEN);
    }
    float start[CONTEXT];
    judge_page(page, features, hidden, start);
    for (size_t i = 0; i < count; i++) {
        float context[CONTEXT];
        memcpy(context, start, sizeof context);
        for (size_t j = 0; j < 2 * REACH + 1; j++)
            if (i + j >= REACH && i + j - REACH < count)
                add_layer(context, hidden[i + j - REACH], HIDDEN, context_weights[j * HIDDEN], CONTEXT);
        rectify(context, CONTEXT);
        float sum = verdict_bias[0];
        for (int j = 0; j < CONTEXT; j++) sum += context[j] * verdict_weights[j];
        for (int j = 0; j < HIDDEN; j++) sum += hidden[i][j] * verdict_weights[CONTEXT + j];
        verdicts[i] = sum;
    }
}

void judge_lines(const page *page, const features *features, buffer *verdicts) {
    size_t count = page->lines.count;
    name_sums names = {0};
    verdicts->count = 0;
    float (*hidden)[HIDDEN] = malloc((count + 1) * sizeof *hidden);
    float *found = add_items(verdicts, count, sizeof *found);
    if (sum_names(page, &names) && hidden && (found || count == 0)) judge_all(page, features, &names, hidden, found);
    else no_memory = true;
    free(hidden);
    free(names.numbers);
    free(names.sums);
}

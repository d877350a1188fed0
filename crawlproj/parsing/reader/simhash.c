#include "simhash.h"

#include <stdlib.h>

#include "text.h"

#define SPREAD UINT64_C(0x9E3779B1)
#define MOST_WORDS 20000
/* Longer words than this on average are no words: the text is written without spaces. */
#define SPACED_CHARS 20

static uint32_t crcs[256];

void make_crcs(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xEDB88320) : 0);
        crcs[byte] = crc;
    }
}

static bool is_between_words(char byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }
static bool begins_character(char byte) { return ((unsigned char)byte & 0xC0) != 0x80; }

typedef struct {
    uint64_t *seen; /* CRCs, each plus one */
    size_t mask, different;
    /* How many words have a bit is a number of its own for each of 64; the first of these has the ones of all of
     * them, the second the twos, and so on. */
    uint64_t digits[32];
} tally;

static void count_word(tally *tally, const char *at, const char *end) {
    uint32_t crc = UINT32_MAX;
    for (; at < end; at++) crc = crc >> 8 ^ crcs[(crc ^ (unsigned char)*at) & 0xFF];
    crc = ~crc;
    size_t place = crc & tally->mask;
    for (; tally->seen[place]; place = (place + 1) & tally->mask)
        if (tally->seen[place] == (uint64_t)crc + 1) return;
    tally->seen[place] = (uint64_t)crc + 1;
    tally->different++;
    uint64_t carry = (uint64_t)crc << 32 | ((uint64_t)crc * SPREAD >> 16 & UINT32_MAX);
    for (uint64_t *digit = tally->digits; carry; digit++) {
        uint64_t next = *digit & carry;
        *digit ^= carry;
        carry = next;
    }
}

static const char *next_character(const char *at, const char *end) {
    do at++;
    while (at < end && !begins_character(*at));
    return at;
}

static void count_words(tally *tally, const char *at, const char *end, bool has_words) {
    for (size_t words = 0; words < MOST_WORDS; words++) {
        while (has_words && at < end && is_between_words(*at)) at++;
        if (at >= end) return;
        const char *start = at;
        if (has_words) {
            while (at < end && !is_between_words(*at)) at++;
            count_word(tally, start, at);
        } else {
            at = next_character(at, end);
            if (at >= end || words == MOST_WORDS - 1) return;
            count_word(tally, start, next_character(at, end));
        }
    }
}

bool find_simhash(const char *text, size_t length, uint64_t *found) {
    size_t words = 0, chars = 0, room = 64;
    bool was_between = true;
    for (size_t i = 0; i < length; i++) {
        bool is_between = is_between_words(text[i]);
        words += words < MOST_WORDS && was_between && !is_between;
        chars += begins_character(text[i]);
        was_between = is_between;
    }
    if (words == 0) return false;
    bool has_words = words * SPACED_CHARS >= chars;
    size_t most = has_words ? words : chars < MOST_WORDS ? chars : MOST_WORDS;
    while (room < 2 * most) room *= 2;
    tally tally = {.seen = calloc(room, sizeof *tally.seen), .mask = room - 1};
    if (tally.seen == NULL) {
        no_memory = true;
        return false;
    }
    count_words(&tally, text, text + length, has_words);
    free(tally.seen);
    *found = 0;
    for (int bit = 0; bit < 64; bit++) {
        size_t have = 0;
        for (int i = 0; i < 32; i++) have |= (size_t)(tally.digits[i] >> bit & 1) << i;
        *found |= (uint64_t)(have > tally.different / 2) << bit;
    }
    return true;
}

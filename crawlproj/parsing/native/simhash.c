/* The simhash of a text whose words stand between spaces; simhash.py says what it is, and must come to the same. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define SPREAD UINT64_C(0x9E3779B1)

static uint32_t crcs[256];

/* When the library is loaded: later, threads could meet here. */
__attribute__((constructor)) static void make_crcs(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xEDB88320) : 0);
        crcs[byte] = crc;
    }
}

static bool is_space(unsigned char byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }

/* Puts crc among those seen, of which there is room for mask + 1; returns whether it is new. */
static bool add(uint64_t *seen, size_t mask, uint32_t crc) {
    /* Its lower bits are as good as any; zero is for no CRC. */
    size_t place = crc & mask;
    uint64_t new = (uint64_t)crc + 1;
    while (seen[place]) {
        if (seen[place] == new) return false;
        place = (place + 1) & mask;
    }
    seen[place] = new;
    return true;
}

static size_t words_in(const unsigned char *text, size_t length, size_t most) {
    size_t words = 0;
    bool was_space = true;
    for (size_t i = 0; i < length && words < most; i++) {
        bool is_one = is_space(text[i]);
        words += was_space && !is_one;
        was_space = is_one;
    }
    return words;
}

/* Of the first most_words words. words is set to how many there are, -1 if there was no memory for them. */
uint64_t text_simhash(const char *text, size_t length, size_t most_words, long *words) {
    const unsigned char *at = (const unsigned char *)text, *end = at + length;
    size_t count = words_in(at, length, most_words), room = 64, different = 0;
    while (room < 2 * count) room *= 2;
    uint64_t *seen = calloc(room, sizeof *seen);
    *words = seen ? (long)count : -1;
    if (seen == NULL) return 0;
    /* How many words have a bit is a number of its own for each of 64; in the first of these are the ones of all
     * of them, in the second the twos, and so on. */
    uint64_t digits[32] = {0};
    for (; count > 0; count--) {
        while (is_space(*at)) at++;
        uint32_t crc = UINT32_MAX;
        for (; at < end && !is_space(*at); at++) crc = crc >> 8 ^ crcs[(crc ^ *at) & 0xFF];
        crc = ~crc;
        if (!add(seen, room - 1, crc)) continue;
        different++;
        uint64_t carry = (uint64_t)crc << 32 | ((uint64_t)crc * SPREAD >> 16 & UINT32_MAX);
        for (uint64_t *digit = digits; carry; digit++) {
            uint64_t next = *digit & carry;
            *digit ^= carry;
            carry = next;
        }
    }
    free(seen);
    uint64_t result = 0;
    for (int bit = 0; bit < 64; bit++) {
        size_t have = 0;
        for (int i = 0; i < 32; i++) have |= (size_t)(digits[i] >> bit & 1) << i;
        result |= (uint64_t)(have > different / 2) << bit;
    }
    return result;
}

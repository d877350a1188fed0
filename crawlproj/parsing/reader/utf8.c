#include "utf8.h"

#include <stdint.h>
#include <string.h>

/* Returns the length of the character at at, 0 if it is not one or not whole. */
static size_t character_length(const unsigned char *at, size_t left) {
    unsigned char lead = at[0];
    size_t length = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (length == 0 || length > left) return 0;
    /* The second byte rules out what is too long, a surrogate or beyond Unicode. */
    unsigned char least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80, most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (at[1] < least || at[1] > most) return 0;
    for (size_t i = 2; i < length; i++)
        if ((at[i] & 0xC0) != 0x80) return 0;
    return length;
}

size_t valid_utf8(const char *bytes, size_t length) {
    const unsigned char *start = (const unsigned char *)bytes, *at = start, *end = start + length;
    while (at < end) {
        /* Most of a page is ASCII. */
        uint64_t words[4];
        while (end - at >= 32) {
            memcpy(words, at, sizeof words);
            if ((words[0] | words[1] | words[2] | words[3]) & UINT64_C(0x8080808080808080)) break;
            at += 32;
        }
        while (at < end && *at < 0x80) at++;
        while (at < end && *at >= 0x80) {
            size_t taken = character_length(at, (size_t)(end - at));
            if (taken == 0) return (size_t)(at - start);
            at += taken;
        }
    }
    return length;
}

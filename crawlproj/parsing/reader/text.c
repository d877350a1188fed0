#include "text.h"

#include <stdlib.h>
#include <string.h>

bool no_memory;

void *add_items(buffer *buffer, size_t count, size_t size) {
    if (no_memory) return NULL;
    size_t needed = buffer->count + count;
    if (buffer->items == NULL || needed * size > buffer->room_bytes) {
        size_t room_bytes = (needed + needed / 2 + 64) * size;
        void *larger = realloc(buffer->items, room_bytes);
        if (larger == NULL) {
            no_memory = true;
            return NULL;
        }
        buffer->items = larger;
        buffer->room_bytes = room_bytes;
    }
    void *added = (char *)buffer->items + buffer->count * size;
    buffer->count = needed;
    return added;
}

void free_buffer(buffer *buffer) {
    free(buffer->items);
    memset(buffer, 0, sizeof *buffer);
}

uint64_t hash_bytes(const char *bytes, size_t length, uint64_t start) {
    uint64_t hash = start * UINT64_C(0x9E3779B97F4A7C15), word = 0;
    size_t i = 0;
    for (; i + 8 <= length; i += 8) {
        memcpy(&word, bytes + i, 8);
        hash = (hash ^ word) * UINT64_C(0xD6E8FEB86659FD93);
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, bytes + i, length - i);
    hash = (hash ^ word ^ (uint64_t)length << 56) * UINT64_C(0xD6E8FEB86659FD93);
    return hash ^ hash >> 29;
}

/* -- character references ------------------------------------------------------------------------------------ */

#define NAME_PLACES 8192 /* for 2,231 names */
#define LONGEST_NAME 33
#define LONGEST_WITHOUT_SEMICOLON 6

static struct {
    char name[LONGEST_NAME + 1];
    char utf8[10];
} names[NAME_PLACES];

static uint32_t place_of(const char *name, size_t length) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    return (hash ^ hash >> 15) % NAME_PLACES;
}

bool add_character_name(const char *name, const char *utf8) {
    size_t length = strlen(name);
    if (length > LONGEST_NAME || strlen(utf8) >= sizeof names->utf8) return false;
    uint32_t place = place_of(name, length);
    while (names[place].name[0]) {
        if (strcmp(names[place].name, name) == 0) return true;
        place = (place + 1) % NAME_PLACES;
    }
    strcpy(names[place].name, name);
    strcpy(names[place].utf8, utf8);
    return true;
}

static const char *find_name(const char *name, size_t length) {
    for (uint32_t place = place_of(name, length); names[place].name[0]; place = (place + 1) % NAME_PLACES)
        if (strncmp(names[place].name, name, length) == 0 && names[place].name[length] == 0) return names[place].utf8;
    return NULL;
}

static size_t write_utf8(uint32_t code, char *out) {
    if (code < 0x80) return out[0] = (char)code, 1;
    if (code < 0x800) return out[0] = (char)(0xC0 | code >> 6), out[1] = (char)(0x80 | (code & 63)), 2;
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12), out[1] = (char)(0x80 | (code >> 6 & 63)), out[2] = (char)(0x80 | (code & 63));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18), out[1] = (char)(0x80 | (code >> 12 & 63));
    out[2] = (char)(0x80 | (code >> 6 & 63)), out[3] = (char)(0x80 | (code & 63));
    return 4;
}

/* What the standard makes of numbers that are no characters: those of windows-1252 for 0x80 to 0x9F. */
static uint32_t character_of(uint32_t number) {
    static const uint16_t windows[32] = {
        0x20AC, 0x81, 0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160, 0x2039, 0x0152, 0x8D, 0x017D, 0x8F,
        0x90, 0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0x9D, 0x017E, 0x0178};
    if (number >= 0x80 && number < 0xA0) return windows[number - 0x80];
    return number == 0 || number > 0x10FFFF || (number >= 0xD800 && number < 0xE000) ? 0xFFFD : number;
}

/* at is behind "&#". Returns how many bytes the number takes, 0 if there is none. */
static size_t read_number(const char *at, const char *end, char *out, size_t *out_length) {
    const char *start = at;
    bool is_hex = at < end && (*at | 32) == 'x';
    at += is_hex;
    const char *digits = at;
    uint32_t number = 0;
    for (; at < end; at++) {
        unsigned digit = (unsigned)(*at - '0');
        if (digit > 9) {
            if (!is_hex || (*at | 32) < 'a' || (*at | 32) > 'f') break;
            digit = (unsigned)((*at | 32) - 'a' + 10);
        }
        if (number <= 0x10FFFF) number = number * (is_hex ? 16 : 10) + digit;
    }
    if (at == digits) return 0;
    *out_length = write_utf8(character_of(number), out);
    return (size_t)(at - start) + (at < end && *at == ';');
}

/* at is behind "&". Returns how many bytes the reference takes, 0 if it is none. */
static size_t read_reference(const char *at, const char *end, bool is_value, char *out, size_t *out_length) {
    if (at < end && *at == '#') {
        size_t taken = read_number(at + 1, end, out, out_length);
        return taken ? taken + 1 : 0;
    }
    size_t length = 0, most = (size_t)(end - at) < LONGEST_NAME ? (size_t)(end - at) : LONGEST_NAME;
    while (length < most && (is_letter(at[length]) || (at[length] >= '0' && at[length] <= '9'))) length++;
    const char *found = NULL;
    size_t taken = 0;
    if (length > 0 && length < most && at[length] == ';') found = find_name(at, taken = length + 1);
    for (size_t i = length < LONGEST_WITHOUT_SEMICOLON ? length : LONGEST_WITHOUT_SEMICOLON; !found && i > 1; i--)
        found = find_name(at, taken = i);
    if (found == NULL) return 0;
    /* In a query, &copy=1 is a parameter. */
    if (is_value && at[taken - 1] != ';' && (size_t)(end - at) > taken) {
        char next = at[taken];
        if (next == '=' || is_letter(next) || (next >= '0' && next <= '9')) return 0;
    }
    *out_length = strlen(found);
    memcpy(out, found, *out_length);
    return taken;
}

/* -- text ------------------------------------------------------------------------------------------------------ */

void put_bytes(text *text, const char *bytes, size_t length) {
    char *place = length ? add_items(&text->bytes, length, 1) : NULL;
    if (place) memcpy(place, bytes, length);
}

/* Line feed and the space that breaks no line are white space, too. */
static const uint8_t stops[256] = {
    [0] = 1, ['\t'] = 1, ['\n'] = 1, ['\f'] = 1, ['\r'] = 1, [' '] = 1, [0xC2] = 1};

static void put_folded(text *text, const char *bytes, size_t length, size_t start) {
    /* No more than what comes in, and a space before it. */
    char *out = add_items(&text->bytes, length + 1, 1);
    if (out == NULL) return;
    const char *line = text_at(text, start);
    for (const char *at = bytes, *end = bytes + length; at < end; at++) {
        if (stops[(unsigned char)*at]) {
            bool is_wide = (unsigned char)*at == 0xC2 && end - at > 1 && (unsigned char)at[1] == 0xA0;
            if ((unsigned char)*at != 0xC2 || is_wide) {
                if (*at != 0) text->has_space = true; /* a zero byte is dropped, as in browsers */
                at += is_wide;
                continue;
            }
        }
        if (text->has_space) {
            if (out > line && out[-1] != '\n') *out++ = ' ';
            text->has_space = false;
        }
        *out++ = *at;
    }
    text->bytes.count = (size_t)(out - text_at(text, 0));
}

static void put_plain(text *text, const char *bytes, size_t length, size_t start, bool is_pre) {
    if (!is_pre) {
        put_folded(text, bytes, length, start);
        return;
    }
    text->has_space = false;
    const char *at = bytes, *end = bytes + length, *plain = at;
    for (; at < end; at++) {
        if (*at != 0 && *at != '\r') continue;
        put_bytes(text, plain, (size_t)(at - plain));
        if (*at == '\r' && !(at + 1 < end && at[1] == '\n')) put_bytes(text, "\n", 1);
        plain = at + 1;
    }
    put_bytes(text, plain, (size_t)(end - plain));
}

void put_markup(text *text, slice markup, size_t start, bool is_pre) {
    const char *at = markup.at, *end = at + markup.length, *plain = at;
    while ((at = memchr(at, '&', (size_t)(end - at))) != NULL) {
        char found[16];
        size_t length = 0, taken = read_reference(at + 1, end, false, found, &length);
        if (taken) {
            put_plain(text, plain, (size_t)(at - plain), start, is_pre);
            put_plain(text, found, length, start, is_pre);
            plain = at + 1 + taken;
        }
        at += 1 + taken;
    }
    put_plain(text, plain, (size_t)(end - plain), start, is_pre);
}

/* Zero bytes are replaced, as in browsers. */
static void put_unfolded(text *text, const char *at, const char *end) {
    for (const char *zero; at < end && (zero = memchr(at, 0, (size_t)(end - at))); at = zero + 1) {
        put_bytes(text, at, (size_t)(zero - at));
        put_bytes(text, "\uFFFD", 3);
    }
    put_bytes(text, at, (size_t)(end - at));
}

void put_value(text *text, slice value) {
    const char *at = value.at, *end = at + value.length, *plain = at;
    while ((at = memchr(at, '&', (size_t)(end - at))) != NULL) {
        char found[16];
        size_t length = 0, taken = read_reference(at + 1, end, true, found, &length);
        if (taken) {
            put_unfolded(text, plain, at);
            put_bytes(text, found, length);
            plain = at + 1 + taken;
        }
        at += 1 + taken;
    }
    put_unfolded(text, plain, end);
}

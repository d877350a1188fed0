/* Whether elements are nested beyond all reason; nesting.py says how that is judged, and must come to the same. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define LONGEST 16 /* no name that matters is longer */

typedef struct {
    const char *data;
    size_t length;
    uint32_t hash;
} name;

static bool is_space(char byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }
static bool is_letter(char byte) { return (byte | 32) >= 'a' && (byte | 32) <= 'z'; }
static char lower(char byte) { return byte >= 'A' && byte <= 'Z' ? (char)(byte | 32) : byte; }

/* Reads the name that begins at data. */
static name read_name(const char *data, const char *end) {
    name found = {data, 0, 2166136261u};
    for (; data < end && !is_space(*data) && *data != '/' && *data != '<' && *data != '>'; data++)
        found.hash = (found.hash ^ (unsigned char)lower(*data)) * 16777619u;
    found.length = (size_t)(data - found.data);
    return found;
}

static bool is_same(name one, name other) {
    if (one.hash != other.hash || one.length != other.length) return false;
    for (size_t i = 0; i < one.length; i++)
        if (lower(one.data[i]) != lower(other.data[i])) return false;
    return true;
}

/* A few names, by their hash. */
typedef struct {
    name places[256];
} names;

static void put_names(names *set, const char *spaced) {
    memset(set, 0, sizeof *set);
    const char *end = spaced + strlen(spaced);
    while (spaced < end) {
        name new = read_name(spaced, end);
        unsigned place = new.hash & 255;
        while (set->places[place].length) place = (place + 1) & 255;
        set->places[place] = new;
        spaced = new.data + new.length + 1;
    }
}

static bool is_in(const names *set, name wanted) {
    if (wanted.length > LONGEST) return false;
    for (unsigned place = wanted.hash & 255; set->places[place].length; place = (place + 1) & 255)
        if (is_same(set->places[place], wanted)) return true;
    return false;
}

/* shallow: names, with spaces between, of elements that hold no others; reopened: of those that go on behind the
 * end of what they were opened in. open has room for most_depth names. */
bool html_is_deep(const char *html, size_t length, const char *shallow, const char *reopened, name *open,
                  size_t most_depth) {
    names are_shallow, are_reopened;
    put_names(&are_shallow, shallow);
    put_names(&are_reopened, reopened);
    /* How many of the open ones have that hash, to see quickly that there are none. */
    uint32_t counts[1024] = {0};
    size_t depth = 0;
    const char *end = html + length;
    for (const char *at = html; (at = memchr(at, '<', (size_t)(end - at))) != NULL;) {
        at++;
        bool is_end = at < end && *at == '/';
        if (is_end) at++;
        if (at == end || !is_letter(*at)) continue;
        name found = read_name(at, end);
        at += found.length;
        if (is_in(&are_shallow, found)) continue;
        if (!is_end) {
            if (depth == most_depth) return true;
            open[depth++] = found;
            counts[found.hash & 1023]++;
            continue;
        }
        if (counts[found.hash & 1023] == 0) continue;
        size_t place = depth;
        while (place > 0 && !is_same(open[place - 1], found)) place--;
        if (place == 0) continue;
        if (place < depth && is_in(&are_reopened, found)) {
            memmove(&open[place - 1], &open[place], (depth - place) * sizeof *open);
            depth--;
            counts[found.hash & 1023]--;
        } else {
            while (depth >= place) counts[open[--depth].hash & 1023]--;
        }
    }
    return false;
}

/* Finding an element by its name. */
#include "tags.h"

#include <string.h>

#define TAG_FLAGS(name, flags) flags,
const uint32_t tag_flags[TAG_COUNT] = {UNKNOWN_FLAGS, TAGS(TAG_FLAGS)};
#undef TAG_FLAGS

#define TAG_TEXT(name, flags) #name,
static const char *const names[TAG_COUNT] = {"", TAGS(TAG_TEXT)};
#undef TAG_TEXT

#define PLACES 1024 /* several times as many as there are tags */
static uint8_t places[PLACES];
_Static_assert(TAG_COUNT <= UINT8_MAX, "too many tags for a byte");

uint32_t name_hash(const char *name, size_t length) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)name[i];
        if (byte >= 'A' && byte <= 'Z') byte |= 32;
        hash = (hash ^ byte) * 16777619u;
    }
    return hash;
}

void make_tags(void) {
    memset(places, 0, sizeof places);
    for (unsigned tag = 1; tag < TAG_COUNT; tag++) {
        uint32_t place = name_hash(names[tag], strlen(names[tag])) % PLACES;
        while (places[place]) place = (place + 1) % PLACES;
        places[place] = (uint8_t)tag;
    }
}

static int is_name(const char *name, size_t length, const char *wanted) {
    for (size_t i = 0; i < length; i++) {
        char byte = name[i];
        if (byte >= 'A' && byte <= 'Z') byte |= 32;
        if (wanted[i] == 0 || byte != wanted[i]) return 0; /* a name may have zero bytes in it */
    }
    return wanted[length] == 0;
}

enum tag find_tag(const char *name, size_t length, uint32_t hash) {
    for (uint32_t place = hash % PLACES; places[place]; place = (place + 1) % PLACES)
        if (is_name(name, length, names[places[place]])) return (enum tag)places[place];
    return TAG_UNKNOWN;
}

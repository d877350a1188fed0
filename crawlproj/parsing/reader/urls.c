#include "urls.h"

#include <string.h>

/* What the URL standard leaves as it is: 1 anywhere, 2 behind the first question mark only. */
static unsigned char safe[256];

static void make_safe(void) {
    const char *anywhere = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_~!$&()*+,;=@/.:-";
    for (const char *at = anywhere; *at; at++) safe[(unsigned char)*at] = 1;
    safe['?'] = safe['%'] = 2;
}

static bool is_safe(slice href) {
    if (!safe['A']) make_safe();
    const char *question = memchr(href.at, '?', href.length);
    size_t path = question ? (size_t)(question - href.at) : href.length;
    if (path == 0 || path + 1 == href.length) return false;
    for (size_t i = 0; i < path; i++)
        if (safe[(unsigned char)href.at[i]] != 1) return false;
    for (size_t i = path + 1; i < href.length; i++)
        if (!safe[(unsigned char)href.at[i]]) return false;
    return true;
}

static bool has_dot_segment(slice href) {
    for (size_t i = 0; i + 1 < href.length; i++)
        if (href.at[i] == '/' && href.at[i + 1] == '.') return true;
    return false;
}

static bool starts(slice text, const char *wanted) {
    size_t length = strlen(wanted);
    return text.length >= length && memcmp(text.at, wanted, length) == 0;
}

static enum plain_link put_absolute(text *out, slice href, size_t *origin_length) {
    const char *slash = href.length > 8 ? memchr(href.at + 8, '/', href.length - 8) : NULL;
    if (slash == NULL || has_dot_segment(href)) return NOT_PLAIN;
    *origin_length = (size_t)(slash - href.at);
    put_bytes(out, href.at, href.length);
    return IS_ABSOLUTE;
}

enum plain_link put_plain_link(text *out, slice href, slice origin, slice folder, size_t *origin_length) {
    if (href.length == 0 || !is_safe(href)) return NOT_PLAIN;
    if (starts(href, "http://") || starts(href, "https://")) return put_absolute(out, href, origin_length);
    if (*href.at == '/') {
        if (starts(href, "//") || has_dot_segment(href)) return NOT_PLAIN;
        put_bytes(out, origin.at, origin.length);
        put_bytes(out, href.at, href.length);
        return IS_PLAIN;
    }
    if (memchr(href.at, ':', href.length)) return NOT_PLAIN;
    for (; starts(href, "../"); href.at += 3, href.length -= 3)
        if (folder.length > origin.length + 1) {
            do folder.length--;
            while (folder.at[folder.length - 1] != '/');
        }
    if (href.length == 0 || *href.at == '/' || *href.at == '.' || *href.at == '?' || has_dot_segment(href)) return NOT_PLAIN;
    put_bytes(out, folder.at, folder.length);
    put_bytes(out, href.at, href.length);
    return IS_PLAIN;
}

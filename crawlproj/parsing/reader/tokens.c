#include "tokens.h"

#include <string.h>

bool begins_with(slice text, const char *wanted) {
    for (size_t i = 0; wanted[i]; i++)
        if (i >= text.length || lower(text.at[i]) != wanted[i]) return false;
    return true;
}

bool has_word(slice text, const char *wanted) {
    size_t length = strlen(wanted);
    const char *end = text.at + text.length;
    for (const char *at = text.at; at < end;) {
        while (at < end && is_space(*at)) at++;
        const char *start = at;
        while (at < end && !is_space(*at)) at++;
        if ((size_t)(at - start) == length && begins_with((slice){start, length}, wanted)) return true;
    }
    return false;
}

/* -- tags -------------------------------------------------------------------------------------------------- */

/* Returns ATTRIBUTE_COUNT for one that does not matter. */
static enum attribute find_attribute(slice name) {
    static const struct {
        const char *name;
        enum attribute attribute;
    } by_length[][5] = {
        [2] = {{"id", ID}},
        [3] = {{"rel", REL}, {"src", SRC}},
        [4] = {{"href", HREF}, {"role", ROLE}, {"name", NAME}, {"type", TYPE}, {"lang", LANG}},
        [5] = {{"class", CLASS}, {"style", STYLE}},
        [6] = {{"hidden", HIDDEN}},
        [7] = {{"content", CONTENT}, {"data-qa", DATA_NAME}},
        [8] = {{"property", PROPERTY}, {"itemprop", ITEMPROP}, {"datetime", DATETIME}},
        [10] = {{"http-equiv", HTTP_EQUIV}},
        [11] = {{"aria-hidden", ARIA_HIDDEN}, {"data-testid", DATA_NAME}},
        [14] = {{"data-component", DATA_NAME}},
    };
    if (name.length >= sizeof by_length / sizeof *by_length) return ATTRIBUTE_COUNT;
    char first = lower(name.at[0]);
    for (int i = 0; i < 5 && by_length[name.length][i].name; i++)
        if (by_length[name.length][i].name[0] == first && begins_with(name, by_length[name.length][i].name))
            return by_length[name.length][i].attribute;
    return ATTRIBUTE_COUNT;
}

static bool ends_name(char byte) { return is_space(byte) || byte == '/' || byte == '>'; }

/* Reads the attributes of a tag and its end; false if the page ends before. */
static bool read_attributes(scanner *scanner, token *tag) {
    const char *at = scanner->at, *end = scanner->end;
    tag->has = 0;
    tag->is_self_closing = false;
    for (;;) {
        while (at < end && (is_space(*at) || *at == '/')) at++;
        if (at == end) return false;
        if (*at == '>') {
            tag->is_self_closing = at[-1] == '/';
            scanner->at = at + 1;
            return true;
        }
        const char *start = at++; /* an equals sign there is part of the name */
        while (at < end && !ends_name(*at) && *at != '=') at++;
        slice name = {start, (size_t)(at - start)}, found = {"", 0};
        while (at < end && is_space(*at)) at++;
        if (at < end && *at == '=') {
            at++;
            while (at < end && is_space(*at)) at++;
            if (at == end) return false;
            if (*at == '"' || *at == '\'') {
                const char *quote = memchr(at + 1, *at, (size_t)(end - at - 1));
                if (quote == NULL) return false;
                found = (slice){at + 1, (size_t)(quote - at - 1)};
                at = quote + 1;
            } else {
                start = at;
                while (at < end && !is_space(*at) && *at != '>') at++;
                found = (slice){start, (size_t)(at - start)};
            }
        }
        enum attribute attribute = find_attribute(name);
        if (attribute != ATTRIBUTE_COUNT && !has(tag, attribute)) {
            tag->has |= 1u << attribute;
            tag->values[attribute] = found;
        }
        /* Here, since a slash that belongs to a value closes nothing: <a href=/>. */
        if (at < end && *at == '>') {
            scanner->at = at + 1;
            return true;
        }
    }
}

/* The name of a tag begins at the scanner. */
static bool read_tag(scanner *scanner, token *tag, enum token_kind kind) {
    const char *start = scanner->at, *at = start;
    uint32_t hash = 2166136261u;
    for (; at < scanner->end && !ends_name(*at); at++) hash = (hash ^ (unsigned char)lower(*at)) * 16777619u;
    tag->kind = kind;
    tag->hash = hash;
    tag->tag = find_tag(start, (size_t)(at - start), hash);
    scanner->at = at;
    return read_attributes(scanner, tag);
}

/* -- what is neither tag nor text ---------------------------------------------------------------------------- */

static const char *find(const char *at, const char *end, const char *wanted) {
    size_t length = strlen(wanted);
    for (; (size_t)(end - at) >= length && (at = memchr(at, *wanted, (size_t)(end - at) - length + 1)); at++)
        if (memcmp(at, wanted, length) == 0) return at;
    return NULL;
}

static const char *after(const char *found, size_t length, const char *end) { return found ? found + length : end; }

/* at is behind "<!--". */
static const char *after_comment(const char *at, const char *end) {
    if (at < end && *at == '>') return at + 1;
    if (end - at >= 2 && at[0] == '-' && at[1] == '>') return at + 2;
    for (; (at = find(at, end, "--")) != NULL; at++) {
        if (end - at >= 3 && at[2] == '>') return at + 3;
        if (end - at >= 4 && at[2] == '!' && at[3] == '>') return at + 4;
    }
    return end;
}

/* Skips "<!...", "<?..." and "</..." that are no tags. at is behind the "<". */
static const char *after_declaration(const char *at, const char *end) {
    if (end - at >= 3 && memcmp(at, "!--", 3) == 0) return after_comment(at + 3, end);
    return after(memchr(at, '>', (size_t)(end - at)), 1, end);
}

void next_token(scanner *scanner, token *found) {
    const char *start = scanner->at, *end = scanner->end, *at = start;
    while (at < end && (at = memchr(at, '<', (size_t)(end - at))) != NULL) {
        char next = end - at > 1 ? at[1] : 0;
        bool is_end_tag = next == '/' && end - at > 2 && is_letter(at[2]);
        bool is_markup = is_letter(next) || is_end_tag || next == '!' || next == '?' || (next == '/' && end - at > 2);
        if (is_markup && at > start) break; /* the text before it comes first */
        if (is_letter(next) || is_end_tag) {
            scanner->at = at + 1 + is_end_tag;
            if (read_tag(scanner, found, is_end_tag ? TOKEN_END_TAG : TOKEN_START_TAG)) return;
            at = start = end;
        } else if (next == '!' && scanner->allows_cdata && end - at >= 9 && memcmp(at, "<![CDATA[", 9) == 0) {
            const char *close = find(at + 9, end, "]]>");
            found->kind = TOKEN_TEXT;
            found->text = (slice){at + 9, (size_t)((close ? close : end) - at - 9)};
            scanner->at = after(close, 3, end);
            return;
        } else if (is_markup) {
            at = start = after_declaration(at + 1, end);
        } else {
            at++;
        }
    }
    if (at == NULL) at = end;
    scanner->at = at;
    found->kind = at > start ? TOKEN_TEXT : TOKEN_END;
    found->text = (slice){start, (size_t)(at - start)};
}

/* -- contents without markup ----------------------------------------------------------------------------------- */

static bool is_tag_of(const char *at, const char *end, const char *name) {
    size_t length = strlen(name);
    return (size_t)(end - at) > length && begins_with((slice){at, length}, name) && ends_name(at[length]);
}

/* In a script, what looks like its end may be part of a comment that opens another script. */
static const char *find_end_of_script(const char *at, const char *end) {
    enum { PLAIN, ESCAPED, DOUBLE } state = PLAIN;
    while (at < end) {
        const char *next = memchr(at, '<', (size_t)(end - at));
        if (state != PLAIN && find(at, next ? next : end, "-->")) state = PLAIN;
        if (next == NULL) return end;
        at = next + 1;
        if (state == PLAIN && end - at >= 3 && memcmp(at, "!--", 3) == 0) {
            state = ESCAPED;
            at += 1; /* its dashes may be those of the end, too: <!--> */
        } else if (at < end && *at == '/' && is_tag_of(at + 1, end, "script")) {
            if (state != DOUBLE) return next;
            state = ESCAPED;
        } else if (state == ESCAPED && is_tag_of(at, end, "script")) {
            state = DOUBLE;
        }
    }
    return end;
}

static const char *find_end_of(const char *at, const char *end, const char *name) {
    for (; at < end && (at = memchr(at, '<', (size_t)(end - at))) != NULL; at++)
        if (end - at > 2 && at[1] == '/' && is_tag_of(at + 2, end, name)) return at;
    return end;
}

slice raw_text(scanner *scanner, enum tag tag) {
    const char *start = scanner->at, *end = scanner->end, *close;
    switch (tag) {
    case TAG_script: close = find_end_of_script(start, end); break;
    case TAG_style: close = find_end_of(start, end, "style"); break;
    case TAG_title: close = find_end_of(start, end, "title"); break;
    case TAG_textarea: close = find_end_of(start, end, "textarea"); break;
    case TAG_iframe: close = find_end_of(start, end, "iframe"); break;
    case TAG_noembed: close = find_end_of(start, end, "noembed"); break;
    case TAG_noframes: close = find_end_of(start, end, "noframes"); break;
    case TAG_xmp: close = find_end_of(start, end, "xmp"); break;
    default: close = end; /* plaintext */
    }
    scanner->at = close;
    if (close < end) {
        token skipped;
        scanner->at = close + 2;
        if (!read_tag(scanner, &skipped, TOKEN_END_TAG)) scanner->at = end;
    }
    return (slice){start, (size_t)(close - start)};
}

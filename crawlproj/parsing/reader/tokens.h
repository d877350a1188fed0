/* HTML as a stream of tags and texts, by the tokenizer of the HTML standard. */
#ifndef CRAWLPROJ_TOKENS_H
#define CRAWLPROJ_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tags.h"

/* A part of the page as it is written. */
typedef struct {
    const char *at;
    size_t length;
} slice;

/* The attributes that matter to anybody. */
enum attribute {
    ARIA_HIDDEN, CLASS, CONTENT, DATA_NAME, DATETIME, HIDDEN, HREF, HTTP_EQUIV, ID, ITEMPROP, LANG, NAME, PROPERTY,
    REL, ROLE, SRC, STYLE, TYPE, ATTRIBUTE_COUNT
};

enum token_kind { TOKEN_END, TOKEN_TEXT, TOKEN_START_TAG, TOKEN_END_TAG };

typedef struct {
    enum token_kind kind;
    slice text;      /* of TEXT */
    enum tag tag;    /* of tags; the rest, too */
    uint32_t hash;   /* of the name */
    bool is_self_closing;
    uint32_t has;    /* bits of those attributes that the tag has; a repeated one counts once */
    slice values[ATTRIBUTE_COUNT];
} token;

typedef struct {
    const char *at, *end;
    bool allows_cdata; /* set while inside of SVG or MathML */
} scanner;

static inline bool has(const token *tag, enum attribute attribute) { return tag->has >> attribute & 1; }
static inline slice value(const token *tag, enum attribute attribute) {
    return has(tag, attribute) ? tag->values[attribute] : (slice){"", 0};
}
static inline bool is_space(char byte) {
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r' || byte == '\f';
}
static inline bool is_letter(char byte) { return (byte | 32) >= 'a' && (byte | 32) <= 'z'; }
static inline char lower(char byte) { return byte >= 'A' && byte <= 'Z' ? (char)(byte | 32) : byte; }

/* Whether text begins with these small letters, whatever its own case. */
bool begins_with(slice text, const char *wanted);
/* Whether one of the words of text, between white space, is that one. */
bool has_word(slice text, const char *wanted);

void next_token(scanner *scanner, token *found);
/* The contents of an element that has no markup inside, up to its end tag, which is skipped. */
slice raw_text(scanner *scanner, enum tag tag);

#endif

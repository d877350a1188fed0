/* The elements of HTML that reading a page needs to know, and what is known of each. */
#ifndef CRAWLPROJ_TAGS_H
#define CRAWLPROJ_TAGS_H

#include <stddef.h>
#include <stdint.h>

enum tag_flag {
    IS_VOID = 1 << 0,       /* never has contents */
    IS_BLOCK = 1 << 1,      /* begins and ends a line */
    IS_SPECIAL = 1 << 2,    /* an end tag of an ordinary element does not reach past it */
    CLOSES_P = 1 << 3,      /* its start tag ends an open paragraph */
    IS_FORMATTING = 1 << 4, /* a, b, i ...: a state of the text, not a part of the tree */
    IS_RAW = 1 << 5,        /* its contents are not markup */
    IS_RCDATA = 1 << 6,     /* the same, but character references count */
    IS_SCOPE = 1 << 7,      /* end tags do not reach past it */
    IS_HEADING = 1 << 8,
    IS_BREAKOUT = 1 << 9,   /* its start tag ends SVG and MathML */
    IS_LIST_SCOPE = 1 << 10,
    IS_BOLD = 1 << 11,
};

#define BLOCK_IN_P (IS_BLOCK | IS_SPECIAL | CLOSES_P | IS_BREAKOUT)
#define HEADING (BLOCK_IN_P | IS_HEADING)
#define CELL (IS_BLOCK | IS_SPECIAL | IS_SCOPE)

/* TAG(name, flags), by name. */
#define TAGS(TAG) \
    TAG(a, IS_FORMATTING) TAG(abbr, 0) TAG(address, BLOCK_IN_P) TAG(applet, IS_SPECIAL | IS_SCOPE) \
    TAG(area, IS_VOID) TAG(article, BLOCK_IN_P) TAG(aside, BLOCK_IN_P) TAG(audio, IS_BLOCK) \
    TAG(b, IS_FORMATTING | IS_BREAKOUT | IS_BOLD) TAG(base, IS_VOID) TAG(big, IS_FORMATTING | IS_BREAKOUT) \
    TAG(blockquote, BLOCK_IN_P) TAG(body, IS_BLOCK | IS_SPECIAL | IS_BREAKOUT) TAG(br, IS_VOID | IS_BREAKOUT) \
    TAG(button, IS_BLOCK | IS_SPECIAL) TAG(canvas, IS_BLOCK) TAG(caption, CELL) \
    TAG(center, BLOCK_IN_P) TAG(cite, 0) TAG(code, IS_FORMATTING | IS_BREAKOUT) \
    TAG(col, IS_VOID) TAG(colgroup, IS_SPECIAL) TAG(datalist, IS_BLOCK) TAG(dd, BLOCK_IN_P) \
    TAG(del, 0) TAG(details, BLOCK_IN_P) TAG(dialog, BLOCK_IN_P) TAG(dir, BLOCK_IN_P | IS_LIST_SCOPE) \
    TAG(div, BLOCK_IN_P) TAG(dl, BLOCK_IN_P) TAG(dt, BLOCK_IN_P) TAG(em, IS_FORMATTING | IS_BREAKOUT) \
    TAG(embed, IS_VOID | IS_BREAKOUT) TAG(fieldset, BLOCK_IN_P) TAG(figcaption, BLOCK_IN_P) TAG(figure, BLOCK_IN_P) \
    TAG(font, IS_FORMATTING) TAG(footer, BLOCK_IN_P) TAG(form, BLOCK_IN_P) TAG(frame, IS_VOID) \
    TAG(frameset, IS_SPECIAL) TAG(h1, HEADING) TAG(h2, HEADING) TAG(h3, HEADING) TAG(h4, HEADING) TAG(h5, HEADING) \
    TAG(h6, HEADING) TAG(head, IS_BLOCK | IS_SPECIAL | IS_BREAKOUT) TAG(header, BLOCK_IN_P) TAG(hgroup, BLOCK_IN_P) \
    TAG(hr, IS_VOID | BLOCK_IN_P) TAG(html, IS_BLOCK | IS_SPECIAL | IS_SCOPE) TAG(i, IS_FORMATTING | IS_BREAKOUT) \
    TAG(iframe, IS_BLOCK | IS_RAW) TAG(img, IS_VOID | IS_BREAKOUT) TAG(input, IS_VOID) TAG(ins, 0) TAG(label, 0) \
    TAG(legend, IS_BLOCK) TAG(li, IS_BLOCK | IS_SPECIAL | CLOSES_P | IS_BREAKOUT) TAG(link, IS_VOID) \
    TAG(main, BLOCK_IN_P) TAG(map, 0) TAG(mark, 0) TAG(marquee, IS_BLOCK | IS_SPECIAL | IS_SCOPE) \
    TAG(math, IS_BLOCK) TAG(menu, BLOCK_IN_P) TAG(meta, IS_VOID | IS_BREAKOUT) TAG(nav, BLOCK_IN_P) \
    TAG(nobr, IS_FORMATTING | IS_BREAKOUT) TAG(noembed, IS_RAW) TAG(noframes, IS_RAW) \
    TAG(noscript, IS_SPECIAL) TAG(object, IS_BLOCK | IS_SPECIAL | IS_SCOPE) \
    TAG(ol, BLOCK_IN_P | IS_LIST_SCOPE) TAG(optgroup, IS_BLOCK) TAG(option, IS_BLOCK) TAG(p, BLOCK_IN_P) \
    TAG(param, IS_VOID) TAG(picture, 0) TAG(plaintext, BLOCK_IN_P) TAG(pre, BLOCK_IN_P) TAG(q, 0) \
    TAG(rp, 0) TAG(rt, 0) TAG(ruby, IS_BREAKOUT) TAG(s, IS_FORMATTING | IS_BREAKOUT) TAG(samp, 0) \
    TAG(script, IS_RAW) TAG(search, BLOCK_IN_P) TAG(section, BLOCK_IN_P) TAG(select, IS_BLOCK | IS_SPECIAL) \
    TAG(small, IS_FORMATTING | IS_BREAKOUT) TAG(source, IS_VOID) TAG(span, IS_BREAKOUT) \
    TAG(strike, IS_FORMATTING | IS_BREAKOUT) TAG(strong, IS_FORMATTING | IS_BREAKOUT | IS_BOLD) TAG(style, IS_RAW) \
    TAG(sub, IS_BREAKOUT) TAG(summary, BLOCK_IN_P) TAG(sup, IS_BREAKOUT) TAG(svg, 0) \
    TAG(table, IS_BLOCK | IS_SPECIAL | IS_SCOPE | IS_BREAKOUT) TAG(tbody, IS_BLOCK | IS_SPECIAL) TAG(td, CELL) \
    TAG(template, IS_SPECIAL | IS_SCOPE) TAG(textarea, IS_BLOCK | IS_RCDATA) TAG(tfoot, IS_BLOCK | IS_SPECIAL) \
    TAG(th, CELL) TAG(thead, IS_BLOCK | IS_SPECIAL) TAG(time, 0) TAG(title, IS_RCDATA) \
    TAG(tr, IS_BLOCK | IS_SPECIAL) TAG(track, IS_VOID) TAG(tt, IS_FORMATTING | IS_BREAKOUT) \
    TAG(u, IS_FORMATTING | IS_BREAKOUT) TAG(ul, BLOCK_IN_P | IS_LIST_SCOPE) TAG(var, IS_BREAKOUT) \
    TAG(video, IS_BLOCK) TAG(wbr, IS_VOID) TAG(xmp, BLOCK_IN_P | IS_RAW)

#define TAG_NAME(name, flags) TAG_##name,
enum tag { TAG_UNKNOWN, TAGS(TAG_NAME) TAG_COUNT };
#undef TAG_NAME

/* Any element of another name ends lines, as a custom element around blocks must. */
#define UNKNOWN_FLAGS IS_BLOCK

extern const uint32_t tag_flags[TAG_COUNT];

/* The hash of a name, its letters made lower case. */
uint32_t name_hash(const char *name, size_t length);
enum tag find_tag(const char *name, size_t length, uint32_t hash);
/* Once, before anything else. */
void make_tags(void);

#endif

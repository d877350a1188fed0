/* Links that need no URL parser. */
#ifndef CRAWLPROJ_URLS_H
#define CRAWLPROJ_URLS_H

#include "text.h"

/* What becomes of a link. */
enum plain_link { NOT_PLAIN, IS_PLAIN, IS_ABSOLUTE };

/* Puts href as a canonical URL if it is plain: only safe characters, and no part of its path that begins with a dot but
 * for ../ at the start. Most are. An absolute one is put as it is, and is canonical if its first origin_length bytes are.
 * origin: that of the page, without a slash at its end; folder: the page's URL up to its last slash. */
enum plain_link put_plain_link(text *out, slice href, slice origin, slice folder, size_t *origin_length);

#endif

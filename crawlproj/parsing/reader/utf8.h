/* Whether bytes are UTF-8. */
#ifndef CRAWLPROJ_UTF8_H
#define CRAWLPROJ_UTF8_H

#include <stddef.h>

/* Returns how many bytes from the start are whole, valid characters. */
size_t valid_utf8(const char *bytes, size_t length);

#endif

/* A 64-bit number for a text, of which texts that are nearly the same differ in few bits. */
#ifndef CRAWLPROJ_SIMHASH_H
#define CRAWLPROJ_SIMHASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each bit is set if most of the different words have it in their hash. A text of hardly any spaces is taken as
 * pairs of characters. Returns false for a text without words. Needs memory: see no_memory. */
bool find_simhash(const char *text, size_t length, uint64_t *found);
/* Once, before anything else. */
void make_crcs(void);

#endif

/* The text of a page from its lines. */
#ifndef CRAWLPROJ_CHOOSE_H
#define CRAWLPROJ_CHOOSE_H

#include "page.h"

/* How a text was found, from the best way to the last resort. */
enum text_source { FROM_MAIN, FROM_RELAXED, FROM_ALL, FROM_NOSCRIPT, FROM_NOTHING };

/* Puts the lines with verdicts above zero; if there are none, what is found in a more inclusive way. */
enum text_source put_main_text(const page *page, const float *verdicts, text *out);
/* Puts every line. */
void put_all_text(const page *page, text *out);

#endif

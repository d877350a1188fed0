/* Which lines of a page are its text. */
#ifndef CRAWLPROJ_JUDGE_H
#define CRAWLPROJ_JUDGE_H

#include "features.h"

/* Once, before anything else. */
void make_names(void);

/* Sets a number for each line: above zero if it belongs to the text, the larger the surer. */
void judge_lines(const page *page, const features *features, buffer *verdicts /* float */);

#endif

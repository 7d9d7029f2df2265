#include "products.h"

/* The columns whose multiples products take; what calls them from outside asks for it. */
int64_t product_columns(void) { return COLUMNS; }

#include "products.h"

/* The width of a tile: products take multiples of it. */
int64_t product_columns(void) { return COLUMNS; }

#pragma once

// The vendor host's numbers of a library's objects. C.

#include <stdint.h>

// A new number. Ends the host where there is no memory.
uint64_t AddHandle(char kind, void* object);
// The number of an object that may be known already; 0 of null.
uint64_t HandleOf(char kind, void* object);
// Null: the number is of no object of this kind, or of one that was dropped.
void* ObjectOf(char kind, uint64_t number);
void DropHandle(char kind, uint64_t number);

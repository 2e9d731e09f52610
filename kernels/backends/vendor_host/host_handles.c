#include "kernels/backends/vendor_host/host_handles.h"

#include <stdlib.h>
#include <unistd.h>

#include "kernels/backends/vendor_host/host_wire.h"

// A handle's number is its slot, with the count of those that had the slot before: one that is gone
// is not taken for its successor.
struct Slot {
  void* object;  // null: free
  char kind;
  uint32_t uses;
};

static struct {
  struct Slot* slots;
  uint32_t count, room;
} handles;

static uint64_t NumberOf(uint32_t slot) {
  return (uint64_t)handles.slots[slot].uses << 32 | (slot + 1);
}

uint64_t AddHandle(char kind, void* object) {
  uint32_t slot = 0;
  while (slot < handles.count && handles.slots[slot].object != NULL) ++slot;
  if (slot == handles.room) {
    const uint32_t room = handles.room == 0 ? 256 : 2 * handles.room;
    struct Slot* slots = realloc(handles.slots, room * sizeof *slots);
    if (slots == NULL) _exit(kHostHasNoMemory);
    handles.slots = slots;
    handles.room = room;
  }
  if (slot == handles.count) {
    handles.slots[slot].uses = 0;
    ++handles.count;
  }
  handles.slots[slot].object = object;
  handles.slots[slot].kind = kind;
  handles.slots[slot].uses = (handles.slots[slot].uses + 1) & 0x7fffff;
  return NumberOf(slot);
}

uint64_t HandleOf(char kind, void* object) {
  if (object == NULL) return 0;
  for (uint32_t i = 0; i < handles.count; ++i) {
    if (handles.slots[i].object == object && handles.slots[i].kind == kind) return NumberOf(i);
  }
  return AddHandle(kind, object);
}

// Null: none of this kind.
static struct Slot* FindHandle(char kind, uint64_t number) {
  const uint64_t slot = (number & UINT32_MAX) - 1;
  if (number == 0 || slot >= handles.count || NumberOf((uint32_t)slot) != number) return NULL;
  struct Slot* found = &handles.slots[slot];
  return found->object != NULL && found->kind == kind ? found : NULL;
}

void* ObjectOf(char kind, uint64_t number) {
  const struct Slot* slot = FindHandle(kind, number);
  return slot == NULL ? NULL : slot->object;
}

void DropHandle(char kind, uint64_t number) {
  struct Slot* slot = FindHandle(kind, number);
  if (slot != NULL) slot->object = NULL;
}

#include "kernels/backends/hexagon/dsp/kept_lists.h"

namespace runnel::hexagon {
namespace {

// A tensor's version is of 64 bits; the words of an operation are counted by 32.
uint32_t* WordsOf(uint64_t* op) { return reinterpret_cast<uint32_t*>(op); }

}  // namespace

void KeptLists::Clear() {
  for (List& list : lists_) list.count = 0;
}

const DspOp* KeptLists::Find(const DspRequest& request, const DspDesk& desk) {
  if (request.op_count > kMaxOps || request.list > kMaxKeptLists) return nullptr;
  if (request.list == 0) return desk.ops;
  List& list = lists_[request.list - 1];
  const bool found = request.revision == 1 ? Keep(request, desk) : Change(request, desk, list);
  if (found) return reinterpret_cast<const DspOp*>(words_[list.place]);
  list.count = 0;
  return nullptr;
}

bool KeptLists::Keep(const DspRequest& request, const DspDesk& desk) {
  const uint32_t first = request.list_place, count = request.op_count;
  if (count == 0 || first > kMaxKeptOps || count > kMaxKeptOps - first) return false;
  for (List& other : lists_) {
    if (other.place < first + count && first < other.place + other.count) other.count = 0;
  }
  const auto* from = reinterpret_cast<const uint64_t*>(desk.ops);
  uint64_t* to = words_[first];
  for (uint32_t i = 0; i < count * (kOpWords / 2); ++i) to[i] = from[i];
  lists_[request.list - 1] = {first, count, 1};
  return true;
}

bool KeptLists::Change(const DspRequest& request, const DspDesk& desk, List& list) {
  if (list.count == 0 || list.count != request.op_count) return false;
  if (request.revision != list.revision + 1 || request.change_count > kMaxChanges) return false;
  for (uint32_t i = 0; i < request.change_count; ++i) {
    const DspChange change = desk.changes[i];
    const uint32_t op = change.op & ~uint32_t{kChangesAlike};
    if (op >= list.count || change.word >= kOpWords) return false;
    if ((change.op & kChangesAlike) != 0) {
      ChangeAlike(list, change, op);
    } else {
      WordsOf(words_[list.place + op])[change.word] = change.value;
    }
  }
  list.revision = request.revision;
  return true;
}

void KeptLists::ChangeAlike(const List& list, const DspChange& change, uint32_t op) {
  const uint32_t before = WordsOf(words_[list.place + op])[change.word];
  for (uint32_t i = 0; i < list.count; ++i) {
    uint32_t& word = WordsOf(words_[list.place + i])[change.word];
    if (word == before) word = change.value;
  }
}

}  // namespace runnel::hexagon

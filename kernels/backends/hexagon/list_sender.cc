#include "kernels/backends/hexagon/list_sender.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>

namespace runnel::hexagon {
namespace {

uint32_t WordOf(const DspOp& op, uint32_t word) {
  uint32_t value;
  std::memcpy(&value, reinterpret_cast<const std::byte*>(&op) + size_t{word} * 4, sizeof(value));
  return value;
}

// The changes of one word of all operations.
class WordChanges {
 public:
  WordChanges(absl::Span<const DspOp> before, absl::Span<const DspOp> after, uint32_t word)
      : word_(word) {
    for (size_t i = 0; i < before.size(); ++i) {
      old_.push_back(WordOf(before[i], word));
      new_.push_back(WordOf(after[i], word));
    }
  }

  void AddTo(std::vector<DspChange>* changes) {
    if (old_ == new_) return;
    const std::set<uint32_t> olds(old_.begin(), old_.end());
    std::set<uint32_t> done;  // old values whose operations all have their new value
    const auto add = [&](size_t op, uint16_t alike) {
      changes->push_back(
          {static_cast<uint16_t>(op | alike), static_cast<uint16_t>(word_), new_[op]});
    };
    // First those that go by the old value: a word that changed by itself may have it by then, and
    // so would a new value that is another one's old value.
    for (size_t i = 0; i < old_.size(); ++i) {
      if (olds.contains(new_[i]) || done.contains(old_[i]) || !AllBecome(old_[i], new_[i]))
        continue;
      done.insert(old_[i]);
      add(i, kChangesAlike);
    }
    for (size_t i = 0; i < old_.size(); ++i) {
      if (old_[i] != new_[i] && !done.contains(old_[i])) add(i, 0);
    }
  }

 private:
  bool AllBecome(uint32_t old_value, uint32_t new_value) const {
    for (size_t i = 0; i < old_.size(); ++i) {
      if (old_[i] == old_value && new_[i] != new_value) return false;
    }
    return true;
  }

  const uint32_t word_;
  std::vector<uint32_t> old_, new_;
};

uint32_t EndOf(uint32_t place, const std::vector<DspOp>& ops) {
  return place + static_cast<uint32_t>(ops.size());
}

}  // namespace

std::vector<DspChange> ChangesBetween(absl::Span<const DspOp> before,
                                      absl::Span<const DspOp> after) {
  std::vector<DspChange> changes;
  for (uint32_t word = 0; word < kOpWords; ++word) {
    WordChanges(before, after, word).AddTo(&changes);
  }
  return changes;
}

RangeSet ListSender::Write(uint64_t key, absl::Span<const DspOp> ops, DspDesk& desk,
                           DspRequest* request) {
  request->op_count = static_cast<uint32_t>(ops.size());
  ++traffic_.lists;
  traffic_.operations += static_cast<int64_t>(ops.size());
  RangeSet written;
  std::vector<DspChange> changes;
  bool whole = true;
  if (key != 0) {
    List& list = Find(key, ops.size());
    if (list.revision > 0) changes = ChangesBetween(list.ops, ops);
    const size_t bytes = changes.size() * sizeof(DspChange);
    whole =
        list.revision == 0 || changes.size() > kMaxChanges || bytes >= ops.size() * sizeof(DspOp);
    list.revision = whole ? 1 : list.revision + 1;
    list.ops.assign(ops.begin(), ops.end());
    request->list = static_cast<uint32_t>(&list - lists_.data()) + 1;
    request->list_place = list.place;
    request->revision = list.revision;
  }
  if (whole) {
    std::memcpy(desk.ops, ops.data(), ops.size() * sizeof(DspOp));
    written.Add(offsetof(DspDesk, ops), request->op_count * sizeof(DspOp));
    ++traffic_.whole_lists;
    traffic_.bytes += static_cast<int64_t>(ops.size() * sizeof(DspOp));
  } else if (!changes.empty()) {
    std::copy(changes.begin(), changes.end(), desk.changes);
    request->change_count = static_cast<uint32_t>(changes.size());
    written.Add(offsetof(DspDesk, changes), request->change_count * sizeof(DspChange));
    traffic_.bytes += static_cast<int64_t>(changes.size() * sizeof(DspChange));
  }
  return written;
}

ListSender::List& ListSender::Find(uint64_t key, size_t count) {
  List* free = nullptr;
  for (List& list : lists_) {
    if (list.key == key) {
      list.last_use = ++uses_;
      if (list.ops.size() == count) return list;
      Forget(list);
    }
    if (list.key == 0 && free == nullptr) free = &list;
  }
  if (free == nullptr) {
    free = &*std::min_element(lists_.begin(), lists_.end(),
                              [](const List& a, const List& b) { return a.last_use < b.last_use; });
    Forget(*free);
  }
  const uint32_t place = TakePlace(static_cast<uint32_t>(count));
  *free = {.key = key, .place = place, .last_use = ++uses_, .ops = std::vector<DspOp>(count)};
  return *free;
}

uint32_t ListSender::TakePlace(uint32_t count) {
  uint32_t place = 0;
  while (!FindGap(count, &place)) {
    List* oldest = nullptr;
    for (List& list : lists_) {
      if (list.key != 0 && (oldest == nullptr || list.last_use < oldest->last_use)) oldest = &list;
    }
    Forget(*oldest);
  }
  return place;
}

bool ListSender::FindGap(uint32_t count, uint32_t* place) const {
  std::vector<const List*> by_place;
  for (const List& list : lists_) {
    if (list.key != 0) by_place.push_back(&list);
  }
  std::sort(by_place.begin(), by_place.end(),
            [](const List* a, const List* b) { return a->place < b->place; });
  *place = 0;
  for (const List* list : by_place) {
    if (list->place - *place >= count) return true;
    *place = EndOf(list->place, list->ops);
  }
  return kMaxKeptOps - *place >= count;
}

void ListSender::Forget(List& list) { list = List(); }

}  // namespace runnel::hexagon

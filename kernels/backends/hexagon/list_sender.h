#pragma once

// The host's side of kept lists (dsp/kept_lists.h): what of a list goes to the desk.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backends/hexagon/op_list.h"
#include "kernels/backends/hexagon/range_set.h"

namespace runnel::hexagon {

// Of all lists so far.
struct ListTraffic {
  int64_t lists = 0;
  int64_t operations = 0;
  int64_t whole_lists = 0;  // whose operations were all sent
  int64_t bytes = 0;        // operations and changes
};

// Knows what the program keeps, which does nothing that its requests do not say. One thread.
class ListSender {
 public:
  // Writes the operations, or what changed of them since they were sent with this key, to the desk
  // and completes the kRun request. Key 0: the program is not to keep them. The ranges of the desk
  // that were written, by offset from its begin.
  RangeSet Write(uint64_t key, absl::Span<const DspOp> ops, DspDesk& desk, DspRequest* request);
  const ListTraffic& traffic() const { return traffic_; }

 private:
  struct List {
    uint64_t key = 0;  // 0: there is none
    uint32_t place = 0;
    uint32_t revision = 0;
    uint64_t last_use = 0;
    std::vector<DspOp> ops;  // as the program has them
  };

  List& Find(uint64_t key, size_t count);
  // A place for so many operations; lists that were not used for the longest time go.
  uint32_t TakePlace(uint32_t count);
  bool FindGap(uint32_t count, uint32_t* place) const;
  void Forget(List& list);

  std::vector<List> lists_ = std::vector<List>(kMaxKeptLists);
  uint64_t uses_ = 0;
  ListTraffic traffic_;
};

// Changes that make `before` `after`, both of as many operations.
std::vector<DspChange> ChangesBetween(absl::Span<const DspOp> before,
                                      absl::Span<const DspOp> after);

}  // namespace runnel::hexagon

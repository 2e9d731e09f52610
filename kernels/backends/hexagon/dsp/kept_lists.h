#pragma once

// Lists of operations that the program keeps, so that a list which comes again is named by its
// number and sent as the words that changed. Runs on the host too, for tests.

#include <stdint.h>

#include "kernels/backends/hexagon/op_list.h"

namespace runnel::hexagon {

class KeptLists {
 public:
  void Clear();
  // Operations of a kRun request, of the desk or of a kept list with the desk's changes; they stay
  // until the next call. Null: the request's numbers are out of bounds, or it names a revision
  // that the program does not have; the list is forgotten.
  const DspOp* Find(const DspRequest& request, const DspDesk& desk);

 private:
  struct List {
    uint32_t place;
    uint32_t count;  // 0: there is none
    uint32_t revision;
  };

  bool Keep(const DspRequest& request, const DspDesk& desk);
  bool Change(const DspRequest& request, const DspDesk& desk, List& list);
  void ChangeAlike(const List& list, const DspChange& change, uint32_t op);

  // All zeros at the start, so that a program's file has none of it.
  List lists_[kMaxKeptLists] = {};
  uint64_t words_[kMaxKeptOps][kOpWords / 2] = {};
};

}  // namespace runnel::hexagon

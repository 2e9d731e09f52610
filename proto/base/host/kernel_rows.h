#pragma once

// Tables of kernels: a row for each instruction set, best first, the last one portable. A row names
// its set as `isa`.

#include <cstddef>
#include <vector>

#include "proto/base/host/isa.h"

namespace runnel {

// The rows that this machine can run, in their order.
template <typename Kernels, size_t kCount>
std::vector<const Kernels*> SupportedRows(const Kernels* const (&table)[kCount]) {
  std::vector<const Kernels*> rows;
  for (const Kernels* row : table) {
    if (HostHas(row->isa)) rows.push_back(row);
  }
  return rows;
}

// The best of these rows that needs no more than `isa`.
template <typename Rows>
const auto& BestRowWithin(const Rows& rows, Isa isa) {
  for (const auto* row : rows) {
    if (row->isa <= isa) return *row;
  }
  return *rows.back();
}

}  // namespace runnel

#include "kernels/backends/mixed/platform.h"

#include <utility>

#include "kernels/backends/mixed/processors.h"

namespace runnel {
namespace {

std::vector<bool> KeepsValues(const std::vector<std::unique_ptr<Backend>>& processors) {
  std::vector<bool> keeps;
  for (const auto& processor : processors) keeps.push_back(RatesOf(processor->name()).keeps_values);
  return keeps;
}

}  // namespace

Platform::Platform(std::vector<std::unique_ptr<Backend>> all)
    : processors(std::move(all)), keeps_values(KeepsValues(processors)), lanes(processors.size()) {}

}  // namespace runnel

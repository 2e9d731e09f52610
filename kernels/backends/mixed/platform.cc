#include "kernels/backends/mixed/platform.h"

#include <utility>

namespace runnel {
namespace {

std::vector<BackendTraits> TraitsOfAll(const std::vector<std::unique_ptr<Backend>>& processors) {
  std::vector<BackendTraits> all;
  for (const auto& processor : processors) all.push_back(processor->traits());
  return all;
}

std::vector<bool> KeepsValues(const std::vector<BackendTraits>& traits) {
  std::vector<bool> keeps;
  for (const BackendTraits& processor : traits) keeps.push_back(processor.keeps_values);
  return keeps;
}

}  // namespace

Platform::Platform(std::vector<std::unique_ptr<Backend>> all)
    : processors(std::move(all)),
      traits(TraitsOfAll(processors)),
      keeps_values(KeepsValues(traits)),
      lanes(processors.size()) {}

}  // namespace runnel

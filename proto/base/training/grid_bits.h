#pragma once

namespace runnel {

// Bits of the grids of a fake-quantising recipe, as a level of the dial "precision" gives them to a
// micro-batch. 0: the bits that the recipe's name has.
struct GridBits {
  int forward = 0;   // of weights and activations
  int backward = 0;  // of gradients

  friend bool operator==(const GridBits&, const GridBits&) = default;
};

}  // namespace runnel

#pragma once
// Semantic version of the library. The wire version changes when two builds could not talk to each other.
#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 1
#define TUTTI_VERSION_PATCH 0
#define TUTTI_VERSION_STRING "0.1.0"

namespace tutti {
inline constexpr unsigned kWireVersion = 6;
}

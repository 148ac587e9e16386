#pragma once
// tutti: collective communication among ranks. This header brings the whole public API.
#include <tutti/communicator.h>
#include <tutti/device_stream.h>
#include <tutti/elastic.h>
#include <tutti/memory.h>
#include <tutti/status.h>
#include <tutti/types.h>
#include <tutti/version.h>
#include <tutti/work.h>

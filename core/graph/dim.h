#pragma once
#include "core/base/dim.h"

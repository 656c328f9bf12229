// The numeric parameters of a formula, in the order of its row in operators.py.
#pragma once

struct FormulaParameters { double value[4]; };

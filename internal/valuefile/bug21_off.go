//go:build !bug21

package valuefile

const bugValueUnchecked = false
